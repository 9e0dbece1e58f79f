package webhook_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/elido-app/webhook"

// deps lists what packages import, directly or not, outside the standard
// library.
func deps(t *testing.T, packages ...string) []string {
	t.Helper()
	args := append([]string{"list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}"}, packages...)
	out, err := exec.Command("go", args...).Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// TestArrowsPointOneWay keeps the layout: who may import whom.
func TestArrowsPointOneWay(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command")
	}
	root := []string{"store", "internal/sig", "internal/scrub", "internal/channel", "internal/egress", "internal/queue", "golang.org/x/time/rate"}
	for pkg, allowed := range map[string][]string{
		"verify":           {"internal/sig"},
		"internal/sig":     {},
		"internal/scrub":   {},
		"internal/channel": {},
		"internal/egress":  {},
		"internal/queue":   {"store", "golang.org/x/time/rate"},
		"store":            {},
		"store/storetest":  {"store"},
		"store_memory":     {"store"},
		"":                 root,
		"httpapi":          append(root, module),
		"dashboard":        append(root, module, "httpapi"),
	} {
		own := strings.TrimSuffix(module+"/"+pkg, "/")
		ok := map[string]bool{own: true}
		for _, a := range allowed {
			ok[module+"/"+a], ok[a] = true, true
		}
		for _, dep := range deps(t, own) {
			require.True(t, ok[dep], "%s must not import %s", own, dep)
		}
	}
	// Modules of their own use what everybody may.
	for _, dir := range []string{"metrics", "tracing"} {
		out, err := exec.Command("go", "-C", dir, "list", "-f", `{{join .Imports "\n"}}`, ".").Output()
		require.NoError(t, err)
		for dep := range strings.FieldsSeq(string(out)) {
			require.False(t, strings.HasPrefix(dep, module+"/"), "%s must not import %s", dir, dep)
		}
		require.Contains(t, string(out), module)
	}
	for _, dep := range deps(t, module+"/store_sqlite") {
		if strings.HasPrefix(dep, module) {
			require.Contains(t, []string{module + "/store_sqlite", module + "/store"}, dep)
		}
	}
}

// TestOneTransport: every HTTP transport is made in internal/egress, so that no
// request can pass the address guard.
func TestOneTransport(t *testing.T) {
	// grep fails if it finds nothing, and it should find internal/egress.
	out, err := exec.Command("grep", "-rnE", `http\.(Transport\{|DefaultTransport|DefaultClient|Client\{|Get\(|Post\()`,
		"--include=*.go", "--exclude=*_test.go", "--exclude-dir=examples", "--exclude-dir=bench", "--exclude-dir=interop", "--exclude-dir=mutants", ".").CombinedOutput()
	require.NoError(t, err, string(out))
	for line := range strings.Lines(string(out)) {
		require.True(t, strings.HasPrefix(line, "./internal/egress/"), line)
	}
}
