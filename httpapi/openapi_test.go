package httpapi

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The document and the routes are two lists of the same. (That answers are as the
// document says, a library that knows OpenAPI tests in interop.)
func TestTheDocumentHasTheRoutes(t *testing.T) {
	type operation struct {
		method, path string
		query        []string
		body         bool
	}
	var documented, served []operation
	_, paths, _ := strings.Cut(string(openapi), "\npaths:\n")
	paths, _, _ = strings.Cut(paths, "\ncomponents:\n")
	path := ""
	line := regexp.MustCompile(`^  (/\S+):$|^    (get|put|post|patch|delete|head|options|trace):$|^        - \$ref: "#/components/parameters/(\w+)"$|^        - name: (\w+)$|^      (requestBody):$`)
	for text := range strings.Lines(paths) {
		m := line.FindStringSubmatch(strings.TrimSuffix(text, "\n"))
		switch {
		case m == nil:
		case m[1] != "":
			path = m[1]
		case m[2] != "":
			documented = append(documented, operation{method: strings.ToUpper(m[2]), path: path})
		case m[5] != "":
			documented[len(documented)-1].body = true
		default:
			o := &documented[len(documented)-1]
			o.query = append(o.query, m[3]+m[4])
		}
	}
	for _, r := range routes {
		served = append(served, operation{r.method, r.path, r.query, r.takes == fields})
	}
	order := func(a, b operation) int { return strings.Compare(a.path+" "+a.method, b.path+" "+b.method) }
	for _, list := range [][]operation{documented, served} {
		slices.SortFunc(list, order)
		for _, o := range list {
			slices.Sort(o.query)
		}
	}
	require.Equal(t, served, documented)
}

// A problem's type leads to where it is explained.
func TestEveryProblemIsExplained(t *testing.T) {
	docs, err := os.ReadFile("../docs/api.md")
	require.NoError(t, err)
	named := map[string]bool{}
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	call := regexp.MustCompile(`typeOf\("([a-z-]+)"\)`)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		source, err := os.ReadFile(e.Name())
		require.NoError(t, err)
		for _, m := range call.FindAllSubmatch(source, -1) {
			named[string(m[1])] = true
		}
	}
	require.Greater(t, len(named), 10)
	heading := regexp.MustCompile("(?m)^### `([a-z-]+)`$")
	explained := map[string]bool{}
	for _, m := range heading.FindAllSubmatch(docs, -1) {
		explained[string(m[1])] = true
	}
	require.Equal(t, named, explained)
}

// The members that a body can have are those that the document knows.
func TestTheDocumentHasTheMembers(t *testing.T) {
	var documented []string
	member := regexp.MustCompile(`(?m)^        (\w+):$`)
	for _, schema := range []string{"NewEndpoint", "EndpointChange", "Rotation", "Recovery"} {
		_, text, ok := strings.Cut(string(openapi), "\n    "+schema+":\n")
		require.True(t, ok)
		text, _, _ = strings.Cut(text, "\n\n")
		_, text, ok = strings.Cut(text, "\n      properties:\n")
		require.True(t, ok)
		for _, m := range member.FindAllStringSubmatch(text, -1) {
			documented = append(documented, m[1])
		}
	}
	slices.Sort(documented)
	known := slices.Clone(members)
	slices.Sort(known)
	require.Equal(t, known, slices.Compact(documented))
}
