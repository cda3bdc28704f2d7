//go:build unix

package nanoagentrl

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/checkpoint"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/server"
)

// serveAddress is the environment variable that makes this test binary a search server of the tiny world.
const serveAddress = "NANOAGENTRL_TEST_SERVE"

func serveTinyWorld(address string) error {
	passages, _ := data.TinyWorld(tinySeed, tinyPeople)
	index, err := retrieve.NewBM25(passages, retrieve.DefaultBM25())
	if err != nil {
		return err
	}
	s, err := server.New(server.Options{Searcher: index, Kind: "bm25", Passages: len(passages)})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return s.Serve(context.Background(), listener)
}

// mortal is a search server in a process of its own, which can be killed and started again at the same address.
type mortal struct {
	t       *testing.T
	address string
	lock    sync.Mutex
	process *exec.Cmd
}

func newMortal(t *testing.T) *mortal {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	m := &mortal{t: t, address: listener.Addr().String()}
	require.NoError(t, listener.Close())
	t.Cleanup(m.kill)
	m.start()
	return m
}

func (m *mortal) start() {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.process = exec.Command(os.Args[0])
	m.process.Env = append(os.Environ(), serveAddress+"="+m.address)
	m.process.Stderr = os.Stderr
	require.NoError(m.t, m.process.Start())
	require.Eventually(m.t, func() bool {
		response, err := http.Get("http://" + m.address + "/healthz")
		if err != nil {
			return false
		}
		return response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, 20*time.Second, time.Millisecond)
}

// kill ends the process as the kernel does when memory runs out.
func (m *mortal) kill() {
	m.lock.Lock()
	defer m.lock.Unlock()
	if m.process != nil {
		_ = m.process.Process.Kill()
		_ = m.process.Wait()
		m.process = nil
	}
}

// A search server that is killed while a run searches, again and again, and started anew at the same address changes
// nothing but the time that the run takes.
func TestKilledAndRestartedServerChangesNothing(t *testing.T) {
	firstPause = time.Millisecond
	m := newMortal(t)
	settings := []string{"retriever_url=http://" + m.address, "retriever_retries=0", "retriever_max_failures=1000", "corpus="}
	want := trained(t, tiny(t, settings...))
	rec := record()
	kills := 0
	rec.onPhase = func(_ int, what string) {
		if what == "rolling out" {
			kills++
			m.kill()
			time.AfterFunc(20*time.Millisecond, m.start)
		}
	}
	got, err := train(t, t.Context(), tiny(t, settings...), rec)
	require.NoError(t, err)
	require.Equal(t, 4, kills)
	require.GreaterOrEqual(t, len(rec.warnings), 4, "each outage is told")
	requireSame(t, want, got)
}

// A search server that stays dead ends the run with its last step saved; once it is back the run goes on, and ends as one
// whose server never died.
func TestServerThatStaysDeadEndsTheRunWhichGoesOnWhenItIsBack(t *testing.T) {
	firstPause = time.Millisecond
	m := newMortal(t)
	settings := []string{"retriever_url=http://" + m.address, "retriever_retries=0", "retriever_max_failures=4", "corpus=",
		"save_every=100"}
	want := trained(t, tiny(t, settings...))
	cfg, rec := tiny(t, settings...), record()
	rec.onPhase = func(step int, what string) {
		if step == 3 && what == "rolling out" {
			m.kill()
		}
	}
	_, err := train(t, t.Context(), cfg, rec)
	require.ErrorIs(t, err, retrieve.ErrGaveUp)
	require.ErrorContains(t, err, "4 searches in a row failed")
	require.ErrorContains(t, err, "what was learned up to step 2 is saved, and the same command goes on from there")
	require.Equal(t, checkpoint.Name(2), rec.saved[len(rec.saved)-1])

	m.start()
	got, err := train(t, t.Context(), cfg, record())
	require.NoError(t, err)
	require.Contains(t, got.out, "resume   from step 2")
	requireSameRun(t, want, got)
}
