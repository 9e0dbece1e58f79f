package shop

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"
	"github.com/stretchr/testify/require"
)

// program is one of the two, built and running.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	logs *buffer
}

// buffer is written by one goroutine and read by another.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func build(t *testing.T, name string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), name)
	out, err := exec.Command("go", "build", "-o", binary, "./"+name).CombinedOutput()
	require.NoError(t, err, string(out))
	return binary
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func start(t *testing.T, address, secret, binary string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(binary, append(args, "-addr", address)...), logs: &buffer{}}
	p.cmd.Env = append(os.Environ(), "WEBHOOK_SECRET="+secret)
	p.cmd.Stderr = p.logs
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, 10*time.Second, 10*time.Millisecond, "%s does not listen: %s", binary, p.logs)
	return p
}

// stop ends it as a service manager would, and requires a clean end.
func (p *program) stop() {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(os.Interrupt))
	require.NoError(p.t, p.cmd.Wait(), p.logs)
}

func TestTheTwoProgramsOfAStranger(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command")
	}
	dir := t.TempDir()
	shopAddress, receiverAddress := freeAddress(t), freeAddress(t)
	embedder, receiver := build(t, "embedder"), build(t, "receiver")
	inboxFile := filepath.Join(dir, "receiver.db")

	call := func(method, path, body string, status int) map[string]any {
		t.Helper()
		req, err := http.NewRequest(method, "http://"+shopAddress+path, bytes.NewReader([]byte(body)))
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		raw, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, status, resp.StatusCode, string(raw))
		var v map[string]any
		require.NoError(t, json.Unmarshal(raw, &v), string(raw))
		return v
	}
	order := func(item string) {
		t.Helper()
		call("POST", "/orders", fmt.Sprintf(`{"item":%q,"price":4.50,"card_number":"4111","email":"a@b.c"}`, item), 200)
	}
	inbox := func() (items []string) {
		db, err := sql.Open("sqlite3", "file:"+inboxFile+"?_busy_timeout=5000")
		require.NoError(t, err)
		defer db.Close()
		rows, err := db.Query(`SELECT json_extract(data, '$.item'), data FROM inbox ORDER BY rowid`)
		require.NoError(t, err)
		defer rows.Close()
		for rows.Next() {
			var item, data string
			require.NoError(t, rows.Scan(&item, &data))
			require.NotContains(t, data, "4111")
			require.NotContains(t, data, "a@b.c")
			items = append(items, item)
		}
		require.NoError(t, rows.Err())
		return items
	}
	arrives := func(items ...string) {
		t.Helper()
		require.Eventually(t, func() bool { return len(inbox()) >= len(items) }, 15*time.Second, 20*time.Millisecond)
		require.ElementsMatch(t, items, inbox())
	}
	deliveries := func(query string) []any {
		t.Helper()
		list, _ := call("GET", "/deliveries?"+query, "", 200)["deliveries"].([]any)
		return list
	}

	shop := start(t, shopAddress, "", embedder, "-db", filepath.Join(dir, "shop.db"))
	created := call("POST", "/endpoints", `{"url":"http://`+receiverAddress+`/","events":["order.*"]}`, 200)
	first := created["secret"].(string)
	r := start(t, receiverAddress, first, receiver, "-db", inboxFile)
	order("tea")
	arrives("tea")

	// Paused: what is published meanwhile is never sent.
	call("POST", "/endpoints/1/pause", "", 200)
	order("paused")
	call("POST", "/endpoints/1/resume", "", 200)

	// Rotated: the old receiver goes on verifying.
	second := call("POST", "/endpoints/1/rotate", "", 200)["secret"].(string)
	order("milk")
	arrives("tea", "milk")

	// Away, and back with the new secret alone.
	r.stop()
	order("away")
	require.Eventually(t, func() bool { return len(deliveries("status=pending")) == 1 }, 10*time.Second, 20*time.Millisecond)
	r = start(t, receiverAddress, second, receiver, "-db", inboxFile)
	arrives("tea", "milk", "away")

	// Away past the whole schedule, then retried by hand.
	r.stop()
	order("late")
	require.Eventually(t, func() bool { return len(deliveries("status=failed&type=order.placed&endpoint=1")) == 1 }, 20*time.Second, 50*time.Millisecond)
	failed := deliveries("status=failed")[0].(map[string]any)
	require.Equal(t, "order.placed", failed["payload"].(map[string]any)["type"], "the payload is JSON, not base64")
	r = start(t, receiverAddress, second, receiver, "-db", inboxFile)
	call("POST", fmt.Sprintf("/deliveries/%.0f/retry", failed["id"]), "", 200)
	arrives("tea", "milk", "away", "late")

	// A delivered one, retried: the receiver takes it for what it is.
	call("POST", "/deliveries/1/retry", "", 200)
	require.Eventually(t, func() bool {
		return len(deliveries("status=delivered")) == 4 && strings.Contains(r.logs.String(), "a duplicate")
	}, 10*time.Second, 20*time.Millisecond)
	arrives("tea", "milk", "away", "late")

	call("POST", "/deliveries/99/retry", "", 404)
	call("GET", "/deliveries?limit=101", "", 422)
	shop.stop()
	r.stop()
}
