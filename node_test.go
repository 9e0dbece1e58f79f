package webhook_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
)

// nodeServers are Node's own servers with its own settings, on many ports, so
// that no two of our endpoints share a connection.
const nodeServers = `
const http = require("node:http");
const count = Number(process.argv[1]);
let requests = 0, up = 0;
for (let i = 0; i < count; i++) {
  const server = http.createServer((request, response) => {
    request.resume().on("end", () => { requests++; response.end("ok"); });
  });
  server.listen(0, "127.0.0.1", () => {
    console.log(server.address().port);
    if (++up === count) console.log("up");
  });
}
process.stdin.on("end", () => { console.log("requests", requests); process.exit(0); }).resume();
`

// Node closes a connection that was idle for 5 to 6 seconds. A POST that is on
// its way just then is a failed attempt and five minutes lost, so we must have
// given the connection up before. Posts are spaced around the end of Node's
// patience, and around the end of ours.
func TestPostsAroundNodesIdleClose(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("needs Node.js")
	}
	const servers = 60
	cmd := exec.Command(node, "-e", nodeServers, strconv.Itoa(servers))
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	lines := bufio.NewScanner(stdout)
	w := outside(t, webhook.Config{Workers: servers})
	var first string
	for workspaceID := int64(1); lines.Scan() && lines.Text() != "up"; workspaceID++ {
		host := "127.0.0.1:" + lines.Text()
		w.endpoint(webhook.EndpointParams{WorkspaceID: workspaceID, URL: "http://" + host + "/"})
		if first == "" {
			first = host
		}
	}
	patience := nodesPatience(t, first)
	require.Greater(t, patience, 4*time.Second, "our own is 3 s")
	w.run()
	defer func() { w.stop() }()

	post := func(workspaceID int64) int64 {
		r, err := w.Publish(t.Context(), webhook.Event{Type: "link.created", WorkspaceID: workspaceID, Data: json.RawMessage(`{"id":1}`)})
		if assert.NoError(t, err) {
			return r.DeliveryIDs[0]
		}
		return 0
	}
	// answered waits for the answer to a post and returns when it came.
	answered := func(workspaceID, id int64) (at time.Time) {
		assert.Eventually(t, func() bool {
			list, err := w.Attempts(t.Context(), workspaceID, id)
			if err != nil || len(list) == 0 {
				return false
			}
			assert.Equal(t, 200, list[0].Status, "%s", list[0].Error)
			at = list[0].StartedAt.Add(list[0].Latency)
			return true
		}, 30*time.Second, 5*time.Millisecond)
		return at
	}
	posts := 0
	for _, idle := range []time.Duration{patience, 3 * time.Second} {
		var group sync.WaitGroup
		for i := range int64(servers) {
			posts += 2
			early := time.Duration(2*i-servers) * time.Millisecond / 2 // 30 ms before to 30 ms after
			group.Go(func() {
				at := answered(i+1, post(i+1))
				time.Sleep(time.Until(at.Add(idle + early)))
				answered(i+1, post(i+1))
			})
		}
		group.Wait()
	}
	stdin.Close()
	require.True(t, lines.Scan())
	require.Equal(t, fmt.Sprint("requests ", posts+1), strings.TrimSpace(lines.Text()), "one request for one attempt")
}

// nodesPatience is how long a server leaves a connection open that is idle.
func nodesPatience(t testing.TB, host string) time.Duration {
	c, err := net.Dial("tcp", host)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"))
	require.NoError(t, err)
	_, err = c.Read(make([]byte, 4096))
	require.NoError(t, err)
	start := time.Now()
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	return time.Since(start)
}
