// Package opensearchtest starts a real OpenSearch node for tests: OpenSearch 2.19.6 with the k-NN plugin, from its
// published artifacts, without security. Tests that want one are skipped unless NANOAGENTRL_OPENSEARCH says where it
// comes from: "auto" fetches it with Maven into the user's cache folder (60 MB, once) and starts it, and an address
// is that of a node that runs.
package opensearchtest

import (
	"archive/zip"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/java"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
)

const variable = "NANOAGENTRL_OPENSEARCH"

// plugins are those of the node.
var plugins = []string{
	"org.opensearch.transport.Netty4Plugin", "org.opensearch.analysis.common.CommonAnalysisPlugin",
	"org.opensearch.painless.PainlessPlugin", "org.opensearch.knn.plugin.KNNPlugin",
}

// Node is a running node.
type Node struct {
	// URL is its address.
	URL string

	t       testing.TB
	home    string // of the Java
	lib     string
	data    string
	process *exec.Cmd
	ended   chan struct{}
}

// Start returns a node that answers, and ends it with the test.
func Start(t testing.TB) *Node {
	t.Helper()
	switch value := os.Getenv(variable); {
	case value == "":
		t.Skipf("skipped: this needs a real OpenSearch; set %s=auto (with Java 11 to 23 and Maven), or to "+
			"the address of one", variable)
	case value != "auto":
		return &Node{URL: value, t: t}
	}
	home, err := java.Find(11, 23) // From 24 on Java has no security manager, which OpenSearch 2 wants.
	if err != nil {
		t.Skipf("skipped: %v", err)
	}
	n := &Node{t: t, home: home, lib: fetch(t), data: t.TempDir()}
	n.run("0")
	t.Cleanup(n.Kill)
	return n
}

// Kill ends the node at once, as a crash would. A node that the test did not start skips the test.
func (n *Node) Kill() {
	n.t.Helper()
	if n.process == nil {
		n.t.Skipf("skipped: the node at %s was not started by the test and is not to be ended; set %s=auto", n.URL, variable)
	}
	_ = n.process.Process.Kill() // It may have ended.
	<-n.ended
}

// Restart starts the node again, at the same address and with the same data.
func (n *Node) Restart() {
	n.t.Helper()
	n.run(n.URL[strings.LastIndex(n.URL, ":")+1:])
}

// run starts the node and waits until it listens.
func (n *Node) run(port string) {
	n.t.Helper()
	// Class data sharing and one compiler tier halve the time to start.
	args := []string{"-Xmx512m", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", filepath.Join(n.lib, "*"),
		source("OpenSearchNode.java"), n.data, port}
	n.process = exec.Command(java.Run(n.home, "java"), append(args, plugins...)...)
	log, err := os.Create(filepath.Join(n.data, "node.log"))
	require.NoError(n.t, err)
	output, err := n.process.StdoutPipe()
	require.NoError(n.t, err)
	n.process.Stderr = log
	_, err = n.process.StdinPipe() // The node ends with its input, also when the test is killed.
	require.NoError(n.t, err)
	require.NoError(n.t, n.process.Start())
	listening, ended := make(chan string, 1), make(chan struct{})
	n.ended = ended
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			fmt.Fprintln(log, lines.Text())
			if port, found := strings.CutPrefix(lines.Text(), "listening on "); found {
				listening <- port
			}
		}
		_, _ = io.Copy(log, output)
		_ = n.process.Wait()
		_ = log.Close()
	}()
	select {
	case port := <-listening:
		n.URL = "http://127.0.0.1:" + port
	case <-ended:
		text, _ := os.ReadFile(log.Name())
		n.t.Fatalf("the node did not start:\n%s", text)
	case <-time.After(5 * time.Minute):
		_ = n.process.Process.Kill()
		<-ended
		text, _ := os.ReadFile(log.Name())
		n.t.Fatalf("the node did not answer within 5 minutes:\n%s", text)
	}
}

// source returns the path of a file of the node.
func source(name string) string {
	return filepath.Join(testenv.Root(), "nanoagentrl", "retrieve", "opensearch", "opensearchtest", "node", name)
}

// fetch returns the folder of the node's libraries. Maven puts them there if it has not yet.
func fetch(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	folder := filepath.Join(cache, "nanoagentrl", "opensearch-2.19.6")
	require.NoError(t, os.MkdirAll(filepath.Dir(folder), 0o755))
	lock := flock.New(folder + ".lock") // Packages are tested at the same time.
	require.NoError(t, lock.Lock())
	defer lock.Unlock()
	if _, err := os.Stat(folder); err == nil {
		return folder
	}
	maven, err := exec.LookPath("mvn")
	if err != nil {
		t.Skipf("skipped: OpenSearch is fetched with Maven, and there is no mvn on the PATH")
	}
	work := folder + ".new"
	require.NoError(t, os.RemoveAll(work))
	command := exec.CommandContext(t.Context(), maven, "-q", "-B", "-f",
		source("pom.xml"),
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+work)
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	archives, err := filepath.Glob(filepath.Join(work, "*.zip"))
	require.NoError(t, err)
	for _, archive := range archives {
		require.NoError(t, unpackJars(archive, work))
	}
	require.NoError(t, os.Rename(work, folder))
	return folder
}

// unpackJars puts the jars of a plugin's archive into a folder.
func unpackJars(archive, folder string) error {
	reader, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer reader.Close()
	for _, file := range reader.File {
		if filepath.Ext(file.Name) != ".jar" {
			continue
		}
		in, err := file.Open()
		if err != nil {
			return err
		}
		out, err := os.Create(filepath.Join(folder, filepath.Base(file.Name)))
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		if err := errors.Join(err, in.Close(), out.Close()); err != nil {
			return err
		}
	}
	return nil
}
