package metrics_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/elido-app/webhook"
)

const (
	dashboardFile  = "grafana-dashboard.json"
	alertsFile     = "alerts.yml"
	alertTestsFile = "testdata/alerts_test.yml"
)

// The dashboard and the alerts ask for nothing that is not there, and the
// dashboard leaves nothing out.
func TestShippedQueriesAskForWhatThereIs(t *testing.T) {
	w := newWorld(t, webhook.Config{Retry: threeAttempts})
	w.metrics.Watch(w.Dispatcher)
	for _, path := range []string{"/200", "/500", "/0"} {
		w.endpoint(42, webhook.KindEvent, path)
	}
	w.publish(42, "link.created")
	w.deliver(3 + 2*2)
	s := w.scrape()
	names := map[string]bool{}
	for name := range s {
		bare, _, _ := strings.Cut(name, "{")
		names[bare] = true
	}

	name := regexp.MustCompile(`\bwebhook_[a-z_]+`)
	matcher := regexp.MustCompile(`([a-z]+)(=~|!=|=)"([^"]*)"`)
	check := func(where, expr string) {
		used := name.FindAllString(expr, -1)
		require.NotEmpty(t, used, where)
		for _, n := range used {
			require.True(t, names[n], "%s: there is no metric %s", where, n)
		}
		for _, m := range matcher.FindAllStringSubmatch(expr, -1) {
			if m[1] == "job" { // Prometheus' own
				continue
			}
			for value := range strings.SplitSeq(m[3], "|") {
				label := fmt.Sprintf("%s=%q", m[1], value)
				require.True(t, slices.ContainsFunc(keys(s), func(n string) bool { return strings.Contains(n, label) }),
					"%s: no series has %s", where, label)
			}
		}
	}
	var shown strings.Builder
	for title, exprs := range panels(t) {
		for _, expr := range exprs {
			check(title, expr)
			shown.WriteString(expr)
		}
	}
	for _, rule := range alerts(t) {
		check(rule.Alert, rule.Expr)
	}
	source, err := os.ReadFile("metrics.go")
	require.NoError(t, err)
	comment, _, _ := strings.Cut(string(source), "\npackage metrics")
	for n := range names {
		require.Contains(t, shown.String(), n, "a metric that the dashboard does not show")
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			n = strings.TrimSuffix(n, part)
		}
		require.Contains(t, comment, n, "a metric that the documentation does not name")
	}
}

func keys(s scrape) (list []string) {
	for name := range s {
		list = append(list, name)
	}
	return list
}

type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) (list []rule) {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	require.NoError(t, err)
	var file struct{ Groups []struct{ Rules []rule } }
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, g := range file.Groups {
		list = append(list, g.Rules...)
	}
	require.NotEmpty(t, list)
	return list
}

// panels returns the queries of each panel by its title.
func panels(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	require.NoError(t, err)
	var dashboard struct {
		Panels []struct {
			ID          int
			Type, Title string
			GridPos     struct{ X, Y, W, H int }
			Datasource  struct{ UID string }
			Targets     []struct{ Expr string }
		}
		Templating struct{ List []struct{ Name string } }
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	all := map[string][]string{}
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range dashboard.Panels {
		require.False(t, ids[p.ID], "two panels with id %d", p.ID)
		ids[p.ID] = true
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Empty(t, cells[cell], "%s lies on another panel", p.Title)
				cells[cell] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		require.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		require.NotEmpty(t, p.Targets, p.Title)
		require.Empty(t, all[p.Title], "two panels of one title")
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], target.Expr)
		}
	}
	require.NotEmpty(t, all)
	return all
}

// Somebody is woken by an alert: it says what is wrong and what to do, and a test
// shows it firing and quiet.
func TestAlertsSayWhatToDo(t *testing.T) {
	text, err := os.ReadFile(alertTestsFile)
	require.NoError(t, err)
	var file struct {
		Tests []struct {
			Alerts []struct {
				Name  string `yaml:"alertname"`
				Fires []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			if len(a.Fires) > 0 {
				fires[a.Name] = true
			} else {
				quiet[a.Name] = true
			}
		}
	}
	page, err := os.ReadFile("../docs/operating.md")
	require.NoError(t, err)
	query := regexp.MustCompile(`query "([^"]+)"`)
	for _, r := range alerts(t) {
		require.Contains(t, string(page), "| `"+r.Alert+"` |")
		for _, q := range query.FindAllStringSubmatch(r.Annotations["description"], -1) {
			require.Contains(t, string(page), "-- "+q[1]+"\n")
		}
		require.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"], r.Alert)
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.NotEmpty(t, r.Annotations["description"], r.Alert)
		require.True(t, fires[r.Alert], "no test shows %s firing", r.Alert)
		require.True(t, quiet[r.Alert], "no test shows %s quiet", r.Alert)
	}
}

// Prometheus' own tool reads the rules, runs their tests, and takes the
// dashboard's queries for queries.
func TestPromtoolAgrees(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		message := "promtool is not installed: apt-get install prometheus"
		if os.Getenv("CI") == "true" {
			t.Fatal(message)
		}
		t.Skip(message)
	}
	run := func(args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
	run("check", "rules", "--lint=all", "--lint-fatal", alertsFile)
	run("test", "rules", alertTestsFile)

	type record struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	grafana := strings.NewReplacer("$__rate_interval", "5m", "$__range", "6h", "$job", ".*")
	var records []record
	for _, exprs := range panels(t) {
		for _, expr := range exprs {
			expr = grafana.Replace(expr)
			require.NotContains(t, expr, "$")
			records = append(records, record{fmt.Sprintf("panel:query:%d", len(records)), expr})
		}
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": records}}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "dashboard.yml")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	run("check", "rules", "--lint=all", "--lint-fatal", path)
}
