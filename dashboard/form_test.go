package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
)

func TestTheFormOffersTheCatalog(t *testing.T) {
	w := newWorld(t)
	a := w.get(top + "/new")
	require.Equal(t, http.StatusOK, a.StatusCode)
	for _, e := range w.d.Catalog().Types() {
		tick := `value="` + e.Name + `"`
		require.Equal(t, e.Form, strings.Contains(a.text, tick), e.Name)
		require.Equal(t, e.Ticked, strings.Contains(a.text, tick+" checked"), e.Name)
	}
	for _, k := range kinds {
		require.Contains(t, a.text, `name="kind" value="`+string(k)+`"`)
	}
}

func TestTheSecretIsShownOnce(t *testing.T) {
	w := newWorld(t)
	a := w.post(top, "kind", "event", "url", w.receiver.URL, "events", "link.created", "events", "link.deleted", "description", "Billing")
	require.Equal(t, http.StatusOK, a.StatusCode, a.text)
	require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
	require.Empty(t, a.Cookies())
	secret := a.secret()
	require.NotEmpty(t, secret)
	list := w.endpoints()
	require.Len(t, list, 1)
	require.Equal(t, []string{"link.created", "link.deleted"}, list[0].Events)
	require.Equal(t, "Billing", list[0].Description)
	require.Contains(t, a.text, `data-page="`+pathOf(list[0], "")+`"`, "a reload leads elsewhere")
	w.publish(map[string]any{"id": 1})
	for _, path := range []string{"", "/edit", "/rotate", "/deliveries", "/delete"} {
		require.NotContains(t, w.get(pathOf(list[0], path)).text, secret)
		require.Empty(t, w.get(pathOf(list[0], path)).secret())
	}
	require.NotContains(t, w.log.String(), secret)
}

// TestKindsTakeTheirFieldsAlone: what was typed for another kind does not count.
func TestKindsTakeTheirFieldsAlone(t *testing.T) {
	token, dsn := "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw9", "https://abcdef0123456789@sentry.example.com/42"
	for kind, fields := range map[string][]string{
		"siem":     {"url", "https://siem.example.com"},
		"telegram": {"chat_id", "-1001", "bot_token", token},
		"sentry":   {"dsn", dsn},
		"discord":  {"url", "https://discord.com/api/webhooks/123456/abcdefghijklmnop"},
	} {
		w := newWorld(t)
		all := append([]string{"kind", kind, "events", "link.created", "secret", "too short for any"}, fields...)
		for i, name := range []string{"url", "chat_id", "bot_token", "dsn"} {
			if !strings.Contains(strings.Join(fields, " "), name) {
				all = append(all, name, []string{"https://example.com", "7", token, dsn}[i])
			}
		}
		if kind == "siem" {
			all[5] = "a secret of my own, quite long enough"
			all[5] = strings.ReplaceAll(all[5], " ", "-")
		}
		a := w.post(top, all...)
		if kind == "siem" {
			require.Equal(t, http.StatusSeeOther, a.StatusCode, "one's own secret is not shown")
		}
		page := w.follow(a)
		require.Contains(t, page.text, "The endpoint was added.")
		list := w.endpoints()
		require.Len(t, list, 1)
		require.Equal(t, webhook.Kind(kind), list[0].Kind)
		for _, path := range []string{"", "/edit"} {
			text := w.get(pathOf(list[0], path)).text
			for _, credential := range []string{token, dsn, "abcdef0123456789", "abcdefghijklmnop"} {
				require.NotContains(t, text, credential, kind)
			}
		}
	}
}

// TestMistakesAreToldBesideTheField: what was typed is kept, but no credential.
func TestMistakesAreToldBesideTheField(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		fields []string
		id     string // of the error
		says   string
		keeps  string
		hides  string
	}{
		{[]string{"url", ""}, "url-error", "Enter the URL", "", ""},
		{[]string{"url", "http://example.com/a?b=1"}, "url-error", "Must begin with https://", "http://example.com/a?b=1", ""},
		{[]string{"url", `https://example.com/"><script>alert(1)</script>`}, "url-error", "percent-encoded", "https://example.com/&#34;&gt;&lt;script&gt;alert(1)&lt;/script&gt;", "<script>alert"},
		{[]string{"url", "https://example.com/" + strings.Repeat("x", 2048)}, "url-error", "longer than 2,048", strings.Repeat("x", 2000), ""},
		{[]string{"url", "https://user:hunter2@example.com"}, "url-error", "user name or password", "", ""},
		{[]string{"url", "https://10.0.0.1/"}, "url-error", "not a public one", "https://10.0.0.1/", ""},
		{[]string{"url", "https://example.com", "events", ""}, "events-error", "lower-case", "https://example.com", ""},
		{[]string{"url", "https://example.com", "-events", ""}, "events-error", "Choose at least one", "https://example.com", ""},
		{[]string{"url", "https://example.com", "events", "click.created"}, "events-error", "is planned", "", ""},
		{[]string{"url", "https://example.com", "further", "link.craeted"}, "further-error", "Did you mean “link.created”?", "link.craeted", ""},
		{[]string{"url", "https://example.com", "further", "domain.verified, *"}, "further-error", "is not accepted", "domain.verified, *", ""},
		{[]string{"url", "https://example.com", "further", "<b>.*"}, "further-error", "lower-case", "&lt;b&gt;.*", "<b>.*"},
		{[]string{"url", "https://example.com", "description", strings.Repeat("ü", 600)}, "description-error", "1,200 bytes", strings.Repeat("ü", 600), ""},
		{[]string{"url", "https://example.com", "description", "a\x00b"}, "description-error", "plain text", `a\u{0}b`, ""},
		{[]string{"url", "https://example.com", "max_in_flight", "many"}, "flight-error", "Must be a number", "many", ""},
		{[]string{"url", "https://example.com", "max_in_flight", "1001"}, "flight-error", "between 0 and 1,000", "1001", ""},
		{[]string{"url", "https://example.com", "max_in_flight", "99999999999999999999"}, "flight-error", "Must be a number", "", ""},
		{[]string{"url", "https://example.com", "rate_limit", "-1"}, "rate-error", "one a day", "-1", ""},
		{[]string{"url", "https://example.com", "rate_limit", "NaN"}, "rate-error", "one a day", "NaN", ""},
		{[]string{"url", "https://example.com", "rate_limit", "1,500"}, "rate-error", "without separators", "1,500", ""},
		{[]string{"url", "https://example.com", "headers", "nonsense"}, "headers-error", "a name, a colon", "nonsense", ""},
		{[]string{"url", "https://example.com", "headers", "X-A: 1\nX-A: 2"}, "headers-error", "X-A is given twice", "X-A: 1\nX-A: 2", ""},
		{[]string{"url", "https://example.com", "headers", "Host: x"}, "headers-error", "Host is reserved", "Host: x", ""},
		{[]string{"url", "https://example.com", "headers", "X-<b>: x"}, "headers-error", "not allowed", "X-&lt;b&gt;: x", "X-<b>"},
		{[]string{"url", "https://example.com", "headers", "X-Api-Key: ***"}, "headers-error", "no value yet", "X-Api-Key: ***", ""},
		{[]string{"url", "x", "headers", "Authorization: Bearer hunter2"}, "headers-error", "is not shown again", "Authorization: ", "hunter2"},
		{[]string{"url", "https://example.com", "secret", "hunter2"}, "secret-error", "24 to 256", "", "hunter2"},
		{[]string{"url", "", "secret", "hunter2hunter2hunter2hunter2"}, "secret-error", "type it again", "", "hunter2"},
		{[]string{"kind", "telegram", "chat_id", "general", "bot_token", "hunter2"}, "chat-error", "a chat&#39;s number", "general", "hunter2"},
		{[]string{"kind", "telegram", "chat_id", "-1001", "bot_token", "hunter2"}, "token-error", "BotFather", "-1001", "hunter2"},
		{[]string{"kind", "telegram", "chat_id", "-1001", "description", strings.Repeat("x", 1100), "bot_token", "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw9"}, "token-error", "type it again", "-1001", "AAHdq"},
		{[]string{"kind", "sentry", "dsn", "https://hunter2@"}, "dsn-error", "DSN", "", "hunter2"},
		{[]string{"kind", "discord", "url", "https://discord.com/api/webhooks/1/hunter2?x=1"}, "url-error", "thread_id", "", "hunter2"},
		{[]string{"kind", "discord", "url", "https://discord.com/api/webhooks/1/hunter2", "description", strings.Repeat("x", 1100)}, "url-error", "type it again", "", "hunter2"},
	} {
		fields := append([]string{"events", "link.updated"}, c.fields...)
		if c.fields[0] != "kind" {
			fields = append(fields, "kind", "event")
		}
		for i := 0; i < len(c.fields); i += 2 {
			if c.fields[i] == "events" || c.fields[i] == "-events" {
				fields = fields[2:]
			}
		}
		a := w.post(top, fields...)
		require.Equal(t, http.StatusUnprocessableEntity, a.StatusCode, c.fields)
		require.Contains(t, a.fieldError(c.id), c.says, c.fields)
		require.Contains(t, a.text, c.keeps, c.fields)
		require.Contains(t, a.text, `aria-describedby`)
		if c.hides != "" {
			require.NotContains(t, a.text, c.hides, c.fields)
		}
	}
	require.Empty(t, w.endpoints())
	require.NotContains(t, w.log.String(), "hunter2")
}

func TestAnUnknownKindIsRefused(t *testing.T) {
	w := newWorld(t)
	a := w.post(top, "kind", "<i>fax</i>", "url", "https://example.com", "events", "link.created")
	require.Equal(t, http.StatusUnprocessableEntity, a.StatusCode)
	require.Contains(t, a.text, "Choose one of the kinds.")
	require.NotContains(t, a.text, "<i>fax")
	require.Empty(t, w.endpoints())
}

// TestTheSameFormTwice: a second click or a reload adds no second endpoint.
func TestTheSameFormTwice(t *testing.T) {
	w := newWorld(t, func(c *webhook.Config, _ *Config) {
		// Whoever comes here waits a moment for another: both would be added.
		meet := make(chan struct{})
		c.AllowEndpoint = func(context.Context, webhook.EndpointParams) error {
			select {
			case meet <- struct{}{}:
			case <-meet:
			case <-time.After(200 * time.Millisecond):
			}
			return nil
		}
	})
	fields := []string{"kind", "event", "url", strings.Replace(w.receiver.URL, "http", "HTTP", 1) + "/a?b=C", "events", "link.created", "description", "kept"}
	const clicks = 8
	answers := make([]answered, clicks)
	var wait sync.WaitGroup
	for i := range clicks {
		wait.Go(func() { answers[i] = w.post(top, fields...) })
	}
	wait.Wait()
	secrets := 0
	for _, a := range answers {
		if a.secret() != "" {
			secrets++
			require.Equal(t, http.StatusOK, a.StatusCode)
			continue
		}
		require.Equal(t, http.StatusConflict, a.StatusCode)
		require.Contains(t, a.text, "sends to the same place already")
		require.Contains(t, a.text, ">\nkept</textarea>")
	}
	require.Equal(t, 1, secrets)
	require.Len(t, w.endpoints(), 1)

	a := w.post(top, append(fields, "again", "1")...)
	require.NotEmpty(t, a.secret())
	require.Len(t, w.endpoints(), 2, "who insists gets another")
}

// TestAddress: the same place is told again after it was saved, and others are not
// taken for it.
func TestAddress(t *testing.T) {
	w := newWorld(t)
	token := "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw9"
	same := []webhook.EndpointParams{
		{Kind: "event", URL: "https://Example.com/a"}, {Kind: "siem", URL: "https://example.com/a"},
		{Kind: "discord", URL: "https://discord.com/api/webhooks/123/abc"}, {Kind: "discord", URL: "https://discord.com/api/v10/webhooks/124/abc?thread_id=5"},
		{Kind: "telegram", Config: map[string]string{"chat_id": "-100", "bot_token": token}},
		{Kind: "sentry", Config: map[string]string{"dsn": "https://abc@Sentry.example.com/42"}},
		{Kind: "sentry", Config: map[string]string{"dsn": "https://abc@sentry.example.com/below/api/42"}},
	}
	for _, p := range same {
		p.WorkspaceID = 42
		if p.Kind != "siem" {
			p.Events = []string{"link.*"}
		}
		e, _, err := w.d.CreateEndpoint(t.Context(), p)
		require.NoError(t, err)
		require.Equal(t, address(p.Kind, e.URL, e.Config), address(p.Kind, p.URL, p.Config))
	}
	for _, other := range []struct {
		kind, a, b string
	}{
		{"event", "https://example.com/a", "https://example.com/A"}, {"event", "https://example.com/?a", "https://example.com/?b"},
		{"discord", "https://discord.com/api/webhooks/123/abc", "https://discord.com/api/webhooks/124/abc"},
		{"discord", "https://discord.com/api/webhooks/123/abc", "https://discord.com/api/webhooks/123/abc?thread_id=5"},
	} {
		require.NotEqual(t, address(webhook.Kind(other.kind), other.a, nil), address(webhook.Kind(other.kind), other.b, nil))
	}
	require.NotEqual(t, address("sentry", "", map[string]string{"dsn": "https://a@s.example/1"}), address("sentry", "", map[string]string{"dsn": "https://a@s.example/2"}))
}

func TestEdit(t *testing.T) {
	w := newWorld(t)
	e, _ := w.endpoint(func(p *webhook.EndpointParams) {
		p.Events = []string{"domain.verified", "link.*", "link.created"}
		p.Headers = map[string]string{"Authorization": "Bearer hunter2", "X-Team": "billing"}
		p.MaxInFlight, p.RateLimit, p.Description = 3, 0.5, "old"
	})
	form := w.get(pathOf(e, "/edit"))
	require.NotContains(t, form.text, "hunter2")
	require.Contains(t, form.text, "Authorization: ***\nX-Team: billing")
	require.Contains(t, form.text, `value="link.*" checked`)
	require.Contains(t, form.text, `value="domain.verified" checked`)
	require.Contains(t, form.text, `value="0.5"`)
	seen := form.hidden(t, "seen")
	fields := func(change ...string) []string {
		values := []string{
			"kind", "event", "seen", seen, "url", w.receiver.URL, "description", "old", "events", "link.created", "events", "link.*", "events", "domain.verified",
			"headers", "Authorization: ***\r\nX-Team: billing", "max_in_flight", "3", "rate_limit", "0.5",
		}
		for i := 0; i < len(change); i += 2 {
			for j := 0; j < len(values); j += 2 {
				if values[j] == change[i] {
					values[j+1] = change[i+1]
				}
			}
		}
		return values
	}
	page := w.follow(w.post(pathOf(e, "/edit"), fields("description", "new <b>")...))
	require.Contains(t, page.text, "The changes were saved.")
	require.Contains(t, page.text, "new &lt;b&gt;")
	after := w.endpoints()[0]
	require.Equal(t, "new <b>", after.Description)
	require.Equal(t, e.Headers, after.Headers)
	require.Equal(t, e.Events, after.Events)
	require.Equal(t, e.RateLimit, after.RateLimit)

	// Somebody else was quicker: nothing is lost, and nothing overwritten unasked.
	stale := w.post(pathOf(e, "/edit"), fields("description", "mine")...)
	require.Equal(t, http.StatusConflict, stale.StatusCode)
	require.Contains(t, stale.text, "Somebody changed this endpoint")
	require.Contains(t, stale.text, ">\nmine</textarea>")
	require.Equal(t, "new <b>", w.endpoints()[0].Description)
	seen = stale.hidden(t, "seen")
	w.follow(w.post(pathOf(e, "/edit"), fields("description", "mine")...))
	require.Equal(t, "mine", w.endpoints()[0].Description)

	// A credential of the old host is not sent to another, nor lost silently.
	seen = w.get(pathOf(e, "/edit")).hidden(t, "seen")
	moved := w.post(pathOf(e, "/edit"), fields("url", "https://example.com/", "description", "mine")...)
	require.Equal(t, http.StatusUnprocessableEntity, moved.StatusCode)
	require.Contains(t, moved.fieldError("headers-error"), "leads to another host")
	require.Equal(t, w.receiver.URL, w.endpoints()[0].URL)
	w.follow(w.post(pathOf(e, "/edit"), fields("url", "https://example.com/", "headers", "Authorization: Bearer other", "description", "mine")...))
	require.Equal(t, map[string]string{"Authorization": "Bearer other"}, w.endpoints()[0].Headers)
	require.Equal(t, "https://example.com/", w.endpoints()[0].URL)

	// A new credential that was typed beside a mistake is not replaced by the old.
	seen = w.get(pathOf(e, "/edit")).hidden(t, "seen")
	again := w.post(pathOf(e, "/edit"), fields("url", "x", "headers", "Authorization: Bearer third")...)
	require.Contains(t, again.fieldError("headers-error"), "is not shown again")
	again = w.post(pathOf(e, "/edit"), fields("url", "https://example.com/", "headers", "Authorization: ")...)
	require.Equal(t, http.StatusUnprocessableEntity, again.StatusCode)

	// What the form cannot show as it is stays as it is.
	odd := "two\nlines\r\nand a turn\u202e"
	_, err := w.d.UpdateEndpoint(t.Context(), 42, e.ID, webhook.EndpointUpdate{Description: &odd})
	require.NoError(t, err)
	form = w.get(pathOf(e, "/edit"))
	require.Contains(t, form.text, ">\ntwo\nlines\nand a turn\\u{202E}</textarea>")
	seen = form.hidden(t, "seen")
	w.follow(w.post(pathOf(e, "/edit"), fields("url", "https://example.com/", "headers", "", "description", "two\r\nlines\r\nand a turn\\u{202E}")...))
	require.Equal(t, odd, w.endpoints()[0].Description)
	require.Empty(t, w.endpoints()[0].Headers)

	// Deleted meanwhile: what was typed can be added anew.
	require.NoError(t, w.d.DeleteEndpoint(t.Context(), 42, e.ID))
	gone := w.post(pathOf(e, "/edit"), fields("url", "https://example.com/late", "headers", "")...)
	require.Equal(t, http.StatusNotFound, gone.StatusCode)
	require.Contains(t, gone.text, "deleted meanwhile")
	require.Contains(t, gone.text, `value="https://example.com/late"`)
	require.Contains(t, gone.text, `action="`+top+`"`)
}

// TestAnotherDSNKeepsNoCredential: what goes with a DSN follows the same rule as what
// goes with a URL, and what is no credential is not lost silently.
func TestAnotherDSNKeepsNoCredential(t *testing.T) {
	w := newWorld(t)
	e, _, err := w.d.CreateEndpoint(t.Context(), webhook.EndpointParams{
		WorkspaceID: 42, Kind: "sentry", Config: map[string]string{"dsn": "https://abcdef01@sentry.example.com/1"}, Events: []string{"link.*"},
		Headers: map[string]string{"Authorization": "Bearer hunter2", "X-Team": "billing"},
	})
	require.NoError(t, err)
	seen := w.get(pathOf(e, "/edit")).hidden(t, "seen")
	save := func(dsn, headers string) answered {
		return w.post(pathOf(e, "/edit"), "seen", seen, "events", "link.*", "dsn", dsn, "headers", headers)
	}
	a := save("https://abcdef02@elsewhere.example.com/1", "Authorization: ***\nX-Team: billing")
	require.Equal(t, http.StatusUnprocessableEntity, a.StatusCode)
	require.Contains(t, a.fieldError("headers-error"), "leads to another host")
	w.follow(save("https://abcdef02@elsewhere.example.com/1", "X-Team: billing"))
	require.Equal(t, map[string]string{"X-Team": "billing"}, w.endpoints()[0].Headers)
	require.Contains(t, w.endpoints()[0].URL, "elsewhere.example.com")
}

// TestManyTicksAreRefused: so many that to show them all again would cost time.
func TestManyTicksAreRefused(t *testing.T) {
	w := newWorld(t)
	fields := []string{"kind", "event", "url", "https://example.com"}
	for i := range 9_000 {
		fields = append(fields, "events", fmt.Sprintf("%x", i))
	}
	a := w.post(top, fields...)
	require.Equal(t, http.StatusUnprocessableEntity, a.StatusCode)
	require.Less(t, len(a.text), 100_000)
}

// TestEditKeepsWhatIsNotShown: credentials that a form leaves empty stay.
func TestEditKeepsWhatIsNotShown(t *testing.T) {
	w := newWorld(t)
	token := "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw9"
	for _, c := range []struct {
		kind   webhook.Kind
		url    string
		config map[string]string
		fields []string
	}{
		{"telegram", "", map[string]string{"chat_id": "-100", "bot_token": token}, []string{"chat_id", "-200", "bot_token", ""}},
		{"discord", "https://discord.com/api/webhooks/123/abcdef", nil, []string{"url", "https://discord.com/api/webhooks/123/***"}},
		{"discord", "https://discord.com/api/webhooks/124/abcdef", nil, []string{"url", ""}},
		{"sentry", "", map[string]string{"dsn": "https://abcdef01@sentry.example.com/1"}, []string{"dsn", ""}},
	} {
		e, _, err := w.d.CreateEndpoint(t.Context(), webhook.EndpointParams{WorkspaceID: 42, Kind: c.kind, URL: c.url, Config: c.config, Events: []string{"link.*"}})
		require.NoError(t, err)
		form := w.get(pathOf(e, "/edit"))
		require.NotContains(t, form.text, token)
		a := w.post(pathOf(e, "/edit"), append([]string{"seen", form.hidden(t, "seen"), "description", "changed", "events", "link.*"}, c.fields...)...)
		require.Contains(t, w.follow(a).text, "The changes were saved.")
		after, err := w.d.Endpoint(t.Context(), 42, e.ID)
		require.NoError(t, err)
		require.Equal(t, "changed", after.Description)
		require.Equal(t, e.URL, after.URL)
		if c.kind == "telegram" {
			require.Equal(t, "-200", after.Config["chat_id"])
		}
	}
}
