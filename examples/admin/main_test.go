package main

import (
	"bufio"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The test runs the program as a child process, which is the test binary again.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_THE_EXAMPLE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func get(t *testing.T, url string, want int) string {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, want, resp.StatusCode, string(text))
	return string(text)
}

func TestItServesEverythingUntilAnInterrupt(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "-every", "10ms")
	cmd.Env = append(os.Environ(), "RUN_THE_EXAMPLE=1")
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewScanner(out)
	require.True(t, lines.Scan(), "it ended")
	address, ok := strings.CutPrefix(lines.Text(), "open ")
	require.True(t, ok, lines.Text())
	address = strings.TrimSuffix(address, "/")

	require.Contains(t, get(t, address+"/", http.StatusOK), `href="/webhooks/workspaces/42/endpoints"`)
	page := get(t, address+"/webhooks/workspaces/42/endpoints", http.StatusOK)
	require.Contains(t, page, address+"/receiver")
	require.Contains(t, page, "The receiver of this demo")
	get(t, address+"/webhooks/workspaces/43/endpoints", http.StatusForbidden)
	require.Contains(t, get(t, address+"/api/v1/workspaces/42/webhooks", http.StatusOK), address+"/receiver")
	get(t, address+"/api/v1/workspaces/43/webhooks", http.StatusForbidden)
	require.Eventually(t, func() bool {
		return strings.Contains(get(t, address+"/webhooks/workspaces/42/endpoints/1", http.StatusOK), "Delivered</span>") &&
			strings.Contains(get(t, address+"/", http.StatusOK), "<td>verified</td>") &&
			strings.Contains(get(t, address+"/metrics", http.StatusOK), `webhook_attempts_total{kind="event",outcome="delivered"}`)
	}, 20*time.Second, 50*time.Millisecond)
	resp, err := http.PostForm(address+"/tell", url.Values{"mood": {"fails"}})
	require.NoError(t, err)
	resp.Body.Close()
	require.Eventually(t, func() bool {
		return strings.Contains(get(t, address+"/webhooks/workspaces/42/endpoints/1/deliveries?status=pending", http.StatusOK), ">500<")
	}, 20*time.Second, 50*time.Millisecond)

	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait())
}
