package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The tests run the program as a child process, which is the test binary again.
func TestMain(m *testing.M) {
	if os.Getenv("RUN_THE_EXAMPLE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), "RUN_THE_EXAMPLE=1")
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// series are what five events make of three receivers.
var series = []string{
	`webhook_attempts_total{kind="event",outcome="delivered"} 10`,
	`webhook_attempts_total{kind="event",outcome="retry"} 15`,
	`webhook_attempts_total{kind="event",outcome="failed"} 5`,
	`webhook_attempt_duration_seconds_count{kind="event",outcome="delivered"} 10`,
	`webhook_answers_total{answer="2xx",kind="event"} 10`,
	`webhook_answers_total{answer="5xx",kind="event"} 20`,
	`webhook_deliveries_failed_total{kind="event"} 5`,
	`webhook_deliveries_published_total 15`,
	`webhook_events_published_total{result="stored"} 5`,
}

func TestItServesMetricsUntilAnInterrupt(t *testing.T) {
	cmd := program(t)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	url := ""
	for lines := bufio.NewScanner(out); url == ""; {
		require.True(t, lines.Scan(), "it ended")
		_, url, _ = strings.Cut(lines.Text(), "metrics at ")
	}
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	lines := strings.Split(string(text), "\n")
	require.Subset(t, lines, append(series, "webhook_backlog_due_deliveries 0"))
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait())
}

func TestOncePrintsThemAndEnds(t *testing.T) {
	out, err := program(t, "-once").Output()
	require.NoError(t, err)
	require.Subset(t, strings.Split(string(out), "\n"), series)
}
