package webhook_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadmeProgramRuns takes the program out of the README, word for word, and
// runs it until it delivers.
func TestReadmeProgramRuns(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command")
	}
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(readme), "```go\n")
	require.True(t, ok)
	program, _, ok := strings.Cut(rest, "```\n")
	require.True(t, ok)
	dir := t.TempDir()
	source, binary := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(source, []byte(program), 0o600))
	out, err := exec.Command("go", "build", "-o", binary, source).CombinedOutput()
	require.NoError(t, err, string(out))

	cmd := exec.Command(binary)
	cmd.Dir = dir
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	var text strings.Builder
	for buf := make([]byte, 4096); !strings.Contains(text.String(), "dispatcher started"); {
		n, err := stderr.Read(buf)
		text.Write(buf[:n])
		require.NoError(t, err, text.String())
	}
	require.Contains(t, text.String(), "signs with whsec_")
	require.FileExists(t, filepath.Join(dir, "webhooks.db"))
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait(), "an interrupt ends it cleanly")
}
