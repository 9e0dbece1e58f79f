package verify_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A receiver that imports this package takes on nothing else.
func TestImportsTheStandardLibraryOnly(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("the go command is not installed")
	}
	out, err := exec.CommandContext(t.Context(), goTool, "list", "-deps",
		"-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"github.com/elido-app/webhook/internal/sig",
		"github.com/elido-app/webhook/verify",
	}, strings.Fields(string(out)))
}
