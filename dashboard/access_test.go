package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/httpapi"
)

// TestWhoMayDoWhat sends everything there is to send as somebody who may not.
func TestWhoMayDoWhat(t *testing.T) {
	w := newWorld(t)
	e, _ := w.endpoint()
	ids := w.publish(map[string]any{"id": 1})
	attempts := func() int {
		list, err := w.d.Attempts(t.Context(), 42, ids[0])
		require.NoError(t, err)
		return len(list)
	}
	unchanged := func() {
		t.Helper()
		w.deliver()
		require.Equal(t, []webhook.Endpoint{e}, w.endpoints())
		require.Equal(t, 1, attempts())
	}

	viewer := func(permission string) error {
		if permission == PermissionView {
			return nil
		}
		return errors.New("a text for the log alone")
	}
	w.may = viewer
	for _, path := range w.pages(e, ids[0]) {
		a := w.get(path)
		edits := regexp.MustCompile(`/(new|edit|rotate|delete|recover)$`).MatchString(path)
		require.Equal(t, edits, a.StatusCode == http.StatusForbidden, path)
		require.NotContains(t, a.text, "a text for the log alone")
		require.NotContains(t, a.text, `method="post"`, path)
		require.NotRegexp(t, `href="[^"]*/(new|edit|rotate|delete|recover)"`, a.text, path)
	}
	for path, fields := range w.forms(e, ids[0]) {
		a := w.post(path, fields...)
		require.Equal(t, http.StatusForbidden, a.StatusCode, path)
		if len(fields) > 4 {
			require.Contains(t, a.text, `value="https://example.com/typed"`, "what was typed is kept")
			require.Contains(t, a.text, "What you typed is still here")
		}
	}
	unchanged()

	w.may = func(string) error { return fmt.Errorf("session: %w", ErrSignedOut) }
	for _, path := range w.pages(e, ids[0])[:11] {
		a := w.get(path)
		require.Equal(t, http.StatusUnauthorized, a.StatusCode, path)
		require.Contains(t, a.text, `href="/sign-in"`)
		require.NotContains(t, a.text, w.receiver.URL)
	}
	for path, fields := range w.forms(e, ids[0]) {
		a := w.post(path, fields...)
		require.Equal(t, http.StatusUnauthorized, a.StatusCode, path)
		require.Contains(t, a.text, `href="/sign-in"`)
		require.NotContains(t, a.text, w.receiver.URL)
		if len(fields) > 4 {
			require.Contains(t, a.text, `value="https://example.com/typed"`)
		}
	}
	unchanged()

	// Whoever may only edit sees nothing, so edits nothing.
	w.may = func(permission string) error {
		if permission == PermissionEdit {
			return nil
		}
		return errors.New("no")
	}
	for _, path := range w.pages(e, ids[0])[:11] {
		require.Equal(t, http.StatusForbidden, w.get(path).StatusCode, path)
	}
	for path, fields := range w.forms(e, ids[0]) {
		require.Equal(t, http.StatusForbidden, w.post(path, fields...).StatusCode, path)
	}
	unchanged()
	w.may = nil
	require.Contains(t, w.get(pathOf(e, "")).text, "Rotate secret")
}

// TestIdsOfOthers: another workspace's ids, another endpoint's deliveries and what
// is no id are not found, and nothing happens to them.
func TestIdsOfOthers(t *testing.T) {
	w := newWorld(t)
	e, _ := w.endpoint()
	other, _ := w.endpoint(func(p *webhook.EndpointParams) { p.URL += "/other" })
	ids := w.publish(map[string]any{"id": 1})
	mine := ids[0]
	if d, err := w.d.Delivery(t.Context(), 42, mine); err != nil || d.EndpointID != e.ID {
		mine = ids[1]
	}
	before := w.endpoints()
	swap := func(path string) []string {
		id := strconv.FormatInt(e.ID, 10)
		rest := strings.TrimPrefix(path, pathOf(e, ""))
		list := []string{strings.Replace(path, "/42/", "/43/", 1)}
		for _, no := range []string{"999", "0", "-1", "x", "01", "+1", "1e3", "9007199254740992", "99999999999999999999", "%00", "1%2F2", "１"} {
			list = append(list, top+"/"+no+rest)
		}
		require.Contains(t, path, "/"+id)
		return list
	}
	for path, fields := range w.forms(e, mine) {
		if path == top {
			continue
		}
		for _, p := range swap(path) {
			require.Equal(t, http.StatusNotFound, w.post(p, fields...).StatusCode, p)
		}
	}
	for _, path := range w.pages(e, mine)[2:11] {
		for _, p := range swap(path) {
			a := w.get(p)
			require.Equal(t, http.StatusNotFound, a.StatusCode, p)
			require.NotContains(t, a.text, w.receiver.URL)
		}
	}
	for _, path := range []string{deliveryPath(other, mine, ""), deliveryPath(e, 999, ""), pathOf(e, "/deliveries/x")} {
		require.Equal(t, http.StatusNotFound, w.get(path).StatusCode, path)
		require.Equal(t, http.StatusNotFound, w.post(path+"/retry").StatusCode, path)
	}
	for _, workspace := range []string{"0", "-1", "x", "9007199254740993"} {
		require.Equal(t, http.StatusNotFound, w.get("/hooks/workspaces/"+workspace+"/endpoints").StatusCode)
	}
	require.Equal(t, before, w.endpoints())
	w.deliver()
	list, err := w.d.Attempts(t.Context(), 42, mine)
	require.NoError(t, err)
	require.Len(t, list, 1)
}

// TestFormsComeFromHere: what another site sends is refused, whatever the browser.
func TestFormsComeFromHere(t *testing.T) {
	w := newWorld(t, func(_ *webhook.Config, c *Config) { c.TrustedOrigins = []string{"https://outside.example"} })
	e, _ := w.endpoint()
	host := strings.TrimPrefix(w.server.URL, "http://")
	send := func(headers ...string) int {
		r := w.form(pathOf(e, "/pause"))
		r.Header.Del("Sec-Fetch-Site")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		return w.do(r).StatusCode
	}
	for _, headers := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Sec-Fetch-Site", "cross-site", "Origin", "http://" + host},
		{"Origin", "https://evil.example"}, {"Origin", "null"}, {"Origin", "http://" + host + ".evil.example"},
		{}, {"Referer", "https://evil.example/" + host}, {"Referer", "http://" + host + "@evil.example/"}, {"Referer", "/relative"}, {"Referer", "::"},
	} {
		require.Equal(t, http.StatusForbidden, send(headers...), headers)
	}
	require.True(t, w.endpoints()[0].Active)
	for _, headers := range [][]string{
		{"Sec-Fetch-Site", "same-origin"}, {"Sec-Fetch-Site", "none"}, {"Origin", "http://" + host}, {"Referer", "http://" + host + "/page"},
		{"Origin", "https://outside.example"}, {"Referer", "https://outside.example/page"}, {"Origin", "https://outside.example", "Sec-Fetch-Site", "cross-site"},
	} {
		require.Equal(t, http.StatusSeeOther, send(headers...), headers)
	}
	require.False(t, w.endpoints()[0].Active)
}

// TestAHostsOwnWords: what the host says of a limit, or of who may do what, is told
// in its words, and beside the fields that it names.
func TestAHostsOwnWords(t *testing.T) {
	var limit error
	w := newWorld(t, func(c *webhook.Config, _ *Config) {
		c.AllowEndpoint = func(context.Context, webhook.EndpointParams) error { return limit }
	})
	typed := []string{"kind", "event", "url", "https://example.com/typed", "events", "link.created"}
	for _, c := range []struct {
		limit  error
		status int
		says   string
	}{
		{&webhook.InvalidError{Field: "plan", Rule: "Your plan has room for <3> endpoints."}, 422, "<p>Your plan has room for &lt;3&gt; endpoints.</p>"},
		{&httpapi.Problem{Status: 402, Title: "Plan limit", Detail: "No room for <4>."}, 402, "<p>No room for &lt;4&gt;.</p>"},
		{&httpapi.Problem{Status: 402, Title: "Plan limit"}, 402, "<p>Plan limit</p>"},
		{&httpapi.Problem{Status: 7}, 500, "<p>Internal Server Error</p>"},
		{&httpapi.Problem{Status: 422, Title: "No", Errors: []httpapi.FieldError{{Field: "url", Detail: "Not <this> one."}}}, 422, `id="url-error">Not &lt;this&gt; one.<`},
		{errors.New("a text for the log alone"), 500, "it is not your fault"},
	} {
		limit = c.limit
		a := w.post(top, typed...)
		require.Equal(t, c.status, a.StatusCode)
		require.Contains(t, a.text, c.says)
		require.Contains(t, a.text, `value="https://example.com/typed"`)
		require.NotContains(t, a.text, "for the log alone")
	}
	require.Contains(t, w.log.String(), "a text for the log alone")

	for _, c := range []struct {
		says   error
		status int
		text   string
	}{
		{&httpapi.Problem{Status: 402, Title: "Unpaid <bill>", Detail: "Pay first."}, 402, "<h1>Unpaid &lt;bill&gt;</h1>"},
		{fmt.Errorf("wrapped: %w", webhook.ErrNotFound), 404, "There is no such page"},
	} {
		w.may = func(string) error { return c.says }
		a := w.get(top)
		require.Equal(t, c.status, a.StatusCode)
		require.Contains(t, a.text, c.text)
		require.Equal(t, c.status, w.post(top, typed...).StatusCode)
	}
	w.may = func(string) error { panic("hunter2") }
	a := w.get(top)
	require.Equal(t, http.StatusInternalServerError, a.StatusCode)
	require.NotContains(t, a.text, "hunter2")
	require.NotContains(t, a.text, "goroutine")
	reference := regexp.MustCompile(`<code>([A-Z2-7]{20,})</code>`).FindStringSubmatch(a.text)
	require.NotNil(t, reference)
	require.Contains(t, w.log.String(), "reference="+reference[1])
	require.NotContains(t, w.log.String(), "hunter2")
	require.Contains(t, w.post(top, typed...).text, `value="https://example.com/typed"`)
}
