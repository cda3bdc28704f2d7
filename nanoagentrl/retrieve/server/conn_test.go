package server

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// listening serves the index on a port of its own with the limits of Serve and returns its address.
func listening(t *testing.T) (address string) {
	t.Helper()
	s, err := New(Options{Searcher: index(t)})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	return listener.Addr().String()
}

func dial(t *testing.T, address string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(20*time.Second)))
	return c.(*net.TCPConn)
}

// Whatever bytes a connection brings, it gets an answer, or is closed, and the server lives.
func TestBytesThatAreNoRequestAreRefused(t *testing.T) {
	address := listening(t)
	const post = "POST /retrieve HTTP/1.1\r\nHost: x\r\n"
	for name, c := range map[string]struct {
		sent   string
		status int
	}{
		"chunks":            {post + "Transfer-Encoding: chunked\r\n\r\n7\r\n{\"query\r\n8\r\n\":\"red\"}\r\n0\r\n\r\n", 200},
		"broken chunks":     {post + "Transfer-Encoding: chunked\r\n\r\nZZ\r\n", 400},
		"half of a body":    {post + "Content-Length: 100\r\n\r\n{", 400},
		"a body too large":  {post + "Content-Length: 99999999999\r\n\r\n" + strings.Repeat(" ", 33<<20), 413},
		"no length":         {post + "\r\n", 400},
		"a negative length": {post + "Content-Length: -1\r\n\r\n", 400},
		"large headers":     {post + strings.Repeat("X-Filler: "+strings.Repeat("y", 100)+"\r\n", 2000) + "\r\n", 431},
		"no HTTP":           {"\x16\x03\x01\x02\x00\r\n\r\n", 400},
		"depth":             {post + "Content-Length: 20000\r\n\r\n" + strings.Repeat("[", 20000), 400},
	} {
		t.Run(name, func(t *testing.T) {
			connection := dial(t, address)
			go func() {
				_, _ = io.WriteString(connection, c.sent) // It may be closed before all is written.
				if c.status != http.StatusOK {            // Who closes a whole request has given it up.
					_ = connection.CloseWrite()
				}
			}()
			response, err := http.ReadResponse(bufio.NewReader(connection), nil)
			require.NoError(t, err)
			assert.Equal(t, c.status, response.StatusCode)
			require.NoError(t, response.Body.Close())
		})
	}
}

// Clients that open connections and say nothing, or begin and do not go on, keep nobody else waiting.
func TestIdleConnectionsKeepNobodyWaiting(t *testing.T) {
	address := listening(t)
	for range 50 {
		_, err := io.WriteString(dial(t, address), "POST /retrieve HTTP/1.1\r\nHo")
		require.NoError(t, err)
		_, err = io.WriteString(dial(t, address), "POST /retrieve HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n{")
		require.NoError(t, err)
	}
	client := http.Client{Timeout: 20 * time.Second}
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			response, err := client.Post("http://"+address+"/retrieve", "application/json", strings.NewReader(`{"query": "red"}`))
			if assert.NoError(t, err) {
				assert.Equal(t, http.StatusOK, response.StatusCode)
				assert.NoError(t, response.Body.Close())
			}
		})
	}
	group.Wait()
	client.CloseIdleConnections()
}
