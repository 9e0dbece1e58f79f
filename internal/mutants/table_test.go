package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const moduleDir = "../.."

// TestTable keeps the table from rotting between two runs of the command: every
// mutant has its place in the source, is still Go, and names tests that exist.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range table {
		require.False(t, seen[m.name], "two mutants are named %q", m.name)
		seen[m.name] = true
		mutated, err := m.apply(moduleDir)
		require.NoError(t, err)
		_, err = parser.ParseFile(token.NewFileSet(), m.file, mutated, 0)
		require.NoError(t, err, m.name)
		for name := range strings.SplitSeq(m.run, "|") {
			function, _, _ := strings.Cut(name, "/")
			require.Contains(t, functions(t, filepath.Join(moduleDir, m.pkg)), function, m.name)
		}
	}
	require.GreaterOrEqual(t, len(table), 30)
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)

// functions returns the tests of a directory.
func functions(t *testing.T, dir string) (names []string) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range testFunction.FindAllSubmatch(source, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}
