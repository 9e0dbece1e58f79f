package webhook_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSecurityNamesItsProof: every test that SECURITY.md calls a proof exists, and
// every promise in its tables names one.
func TestSecurityNamesItsProof(t *testing.T) {
	tests := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range function.FindAllSubmatch(source, -1) {
			tests[string(m[1])] = true
		}
		return err
	}))
	text, err := os.ReadFile("SECURITY.md")
	require.NoError(t, err)
	name := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	for _, m := range name.FindAllSubmatch(text, -1) {
		require.True(t, tests[string(m[1])], "there is no %s", m[1])
	}
	_, promises, ok := strings.Cut(string(text), "## What is promised")
	require.True(t, ok)
	promises, _, ok = strings.Cut(promises, "## What is not\n")
	require.True(t, ok)
	rows := 0
	for line := range strings.Lines(promises) {
		if cells := strings.Split(line, "|"); len(cells) == 4 && len(cells[1]) > 5 {
			rows++
			require.Regexp(t, name, cells[2], cells[1])
		}
	}
	require.Greater(t, rows, 20)
}
