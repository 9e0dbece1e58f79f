package interop_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/verify"
)

// receiver is one of the receivers under test.
type receiver struct {
	name    string
	durable bool // it remembers deliveries when it is started again
	start   func(t *testing.T, env ...string) *process
}

var receivers = []receiver{
	{"verify", false, startVerify},
	{"node", false, startBare},
	{"express", false, startExpress},
	{"python", true, startPython},
	{"flask", true, startFlask},
}

const (
	nodeDir   = "../receiver-node"
	pythonDir = "../receiver-python"
)

func startBare(t *testing.T, env ...string) *process {
	return spawn(t, env, lookNode(t), script(t, nodeDir, "bare.mjs"))
}

func startExpress(t *testing.T, env ...string) *process {
	return spawn(t, env, lookNode(t), express(t))
}

func startPython(t *testing.T, env ...string) *process {
	python, err := exec.LookPath("python3")
	if err != nil {
		unavailable(t, "python3 is not installed: apt-get install python3")
	}
	return spawn(t, env, python, script(t, pythonDir, "stdlib.py"))
}

func startFlask(t *testing.T, env ...string) *process {
	return spawn(t, env, lookFlask(t), script(t, pythonDir, "flask_app.py"))
}

// unavailable ends a test that needs what this machine does not have. In CI
// everything has to be there.
func unavailable(t *testing.T, message string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(message)
	}
	t.Skip(message)
}

// script returns the path of a receiver. It looks at the file, so that go test
// does not take the result of another version of it from its cache.
func script(t *testing.T, dir, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(dir, name))
	require.NoError(t, err)
	_, err = os.Stat(path)
	require.NoError(t, err)
	return path
}

func lookNode(t *testing.T) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		unavailable(t, "node is not installed: Node.js 20 or later, https://nodejs.org")
	}
	return node
}

// express returns the path of express.mjs, in a directory that has Express.
func express(t *testing.T) string {
	t.Helper()
	path := script(t, nodeDir, "express.mjs")
	if _, err := os.Stat(filepath.Join(nodeDir, "node_modules", "express")); err == nil {
		return path
	}
	return installed(t)
}

var install struct {
	sync.Mutex
	dir string
}

// installed copies the receiver elsewhere and installs Express there, once for
// each test, since the receiver is started more than once.
func installed(t *testing.T) string {
	t.Helper()
	install.Lock()
	defer install.Unlock()
	if install.dir != "" {
		return filepath.Join(install.dir, "express.mjs")
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		unavailable(t, "npm is not installed, nor is Express: npm ci --prefix examples/receiver-node")
	}
	dir := t.TempDir()
	for _, name := range []string{"express.mjs", "package.json", "package-lock.json"} {
		content, err := os.ReadFile(filepath.Join(nodeDir, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		unavailable(t, "Express is not installed (npm ci --prefix examples/receiver-node), and npm could not fetch it: "+err.Error()+"\n"+string(out))
	}
	install.dir = dir
	t.Cleanup(func() { // the directory goes with the test
		install.Lock()
		defer install.Unlock()
		install.dir = ""
	})
	return filepath.Join(dir, "express.mjs")
}

// lookFlask returns a Python that has Flask: the one on the PATH, or the
// system's, for which Debian has a package.
func lookFlask(t *testing.T) string {
	t.Helper()
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), python, "-c", "import flask").Run() == nil {
			return python
		}
	}
	unavailable(t, "Flask is not installed: apt-get install python3-flask")
	return ""
}

// process is a receiver that runs.
type process struct {
	*testing.T
	url   string
	lines chan line
	stop  func() // ends it, and returns when it has ended
}

// line is what a receiver prints for each delivery.
type line struct {
	Delivery  string
	Type      string
	Duplicate bool
	Data      struct{ Title string }
}

// next waits for the next line.
func (p *process) next() line {
	p.Helper()
	select {
	case l, ok := <-p.lines:
		require.True(p, ok, "the receiver has ended")
		return l
	case <-time.After(5 * time.Second):
		require.Fail(p, "the receiver reports nothing")
		return line{}
	}
}

// rest returns the lines left, once the receiver was stopped.
func (p *process) rest() []line {
	var all []line
	for l := range p.lines {
		all = append(all, l)
	}
	return all
}

// spawn starts a receiver as a child process, on a port that the system picks.
func spawn(t *testing.T, env []string, name string, args ...string) *process {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), append(env, "PORT=0")...)
	cmd.WaitDelay = 2 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, in := io.Pipe()
	cmd.Stdout = in
	require.NoError(t, cmd.Start())

	p := &process{T: t, lines: make(chan line, 1000)}
	listening := make(chan string, 1)
	go func() {
		defer close(p.lines)
		defer close(listening)
		scanner := bufio.NewScanner(out)
		scanner.Buffer(nil, 4<<20)
		for scanner.Scan() {
			if url, ok := strings.CutPrefix(scanner.Text(), "listening on "); ok {
				listening <- url
				continue
			}
			var l line
			if err := json.Unmarshal(scanner.Bytes(), &l); err != nil {
				l.Type = "not a line of JSON: " + scanner.Text()
			}
			p.lines <- l
		}
	}()
	p.stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill() // this one alone, by its id
		_ = cmd.Wait()
		_ = in.Close() // ends the scanner
		if t.Failed() {
			t.Logf("the receiver's stderr:\n%s", stderr.String())
		}
	})
	t.Cleanup(p.stop)
	select {
	case p.url = <-listening:
	case <-time.After(10 * time.Second):
	}
	require.NotEmpty(t, p.url, "the receiver does not listen")
	return p
}

// startVerify is the receiver made of package verify, in this process.
func startVerify(t *testing.T, env ...string) *process {
	t.Helper()
	vars := map[string]string{}
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		vars[name] = value
	}
	v, err := verify.New(strings.Fields(vars["WEBHOOK_SECRET"])...)
	require.NoError(t, err)
	var failures atomic.Int64
	if n, err := strconv.Atoi(vars["FAIL_FIRST"]); err == nil {
		failures.Store(int64(n))
	}
	p := &process{T: t, lines: make(chan line, 1000)}
	once := verify.Once{Seen: new(verify.Memory)}
	server := httptest.NewServer(v.Handler(func(ctx context.Context, e verify.Event) error {
		l := line{Delivery: e.DeliveryID, Type: e.Type, Duplicate: true}
		err := once.Handler(func(context.Context, verify.Event) error {
			l.Duplicate = false
			if failures.Add(-1) >= 0 {
				return errors.New("FAIL_FIRST")
			}
			return json.Unmarshal(e.Data, &l.Data)
		})(ctx, e)
		if err == nil {
			p.lines <- l
		}
		return err
	}))
	p.url = server.URL + "/webhooks"
	p.stop = sync.OnceFunc(func() {
		server.Close()
		close(p.lines)
	})
	t.Cleanup(p.stop)
	return p
}
