package dashboard

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
)

func TestNewSaysWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	authorize := func(*http.Request, int64, string) error { return nil }
	for want, c := range map[string]Config{
		"Authorize":      {},
		"Prefix":         {Authorize: authorize, Prefix: "hooks"},
		"TrustedOrigins": {Authorize: authorize, TrustedOrigins: []string{"example.com"}},
	} {
		_, err := New(w.d, c)
		require.ErrorContains(t, err, want)
	}
	for _, prefix := range []string{"/hooks/", "/{x}", "/a b", "/", "/a%20b", "/a/../b"} {
		_, err := New(w.d, Config{Authorize: authorize, Prefix: prefix})
		require.ErrorContains(t, err, "Prefix", prefix)
	}
	_, err := New(nil, Config{Authorize: authorize})
	require.ErrorContains(t, err, "ispatcher")
	for _, prefix := range []string{"", "/a", "/a/b-c"} {
		_, err := New(w.d, Config{Authorize: authorize, Prefix: prefix})
		require.NoError(t, err)
	}
}

// pages are all pages that there are to open, for an endpoint with deliveries.
func (w *world) pages(e webhook.Endpoint, deliveryID int64) []string {
	return []string{
		top, top + "/new", pathOf(e, ""), pathOf(e, "?range=week"), pathOf(e, "/edit"), pathOf(e, "/rotate"), pathOf(e, "/delete"), pathOf(e, "/recover"),
		pathOf(e, "/deliveries"), pathOf(e, "/deliveries?status=failed"), deliveryPath(e, deliveryID, ""), top + "/999", "/hooks/nowhere",
	}
}

// forms are all forms that there are to send.
func (w *world) forms(e webhook.Endpoint, deliveryID int64) map[string][]string {
	return map[string][]string{
		top:                                   {"kind", "event", "url", "https://example.com/typed", "events", "link.created"},
		pathOf(e, "/edit"):                    {"kind", "event", "url", "https://example.com/typed", "events", "link.created", "seen", state(e)},
		pathOf(e, "/rotate"):                  {"seen", strconv.Itoa(e.Rotations)},
		pathOf(e, "/delete"):                  nil,
		pathOf(e, "/pause"):                   nil,
		pathOf(e, "/resume"):                  nil,
		pathOf(e, "/test"):                    nil,
		pathOf(e, "/recover"):                 {"since", "2020-01-01T00:00"},
		deliveryPath(e, deliveryID, "/retry"): nil,
	}
}

// TestPagesAreWhole: every page, in every language, says everything, and has
// nothing that its policy forbids.
func TestPagesAreWhole(t *testing.T) {
	w := newWorld(t, func(c *webhook.Config, _ *Config) { c.Health = webhook.HealthPolicy{DegradeAfter: 1} })
	e, _ := w.endpoint(func(p *webhook.EndpointParams) {
		p.Description, p.Headers = "<b>bold</b>", map[string]string{"X-Team": "<i>", "X-Api-Key": "hunter2"}
		p.MaxInFlight, p.RateLimit = 5, 0.25
	})
	ids := w.publish(map[string]any{"id": 1})
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusTeapot) })
	w.publish(map[string]any{"id": 2})
	_, _, err := w.d.RotateSecret(t.Context(), 42, e.ID, webhook.RotateOptions{})
	require.NoError(t, err)
	inline := regexp.MustCompile(`(?i)<script(?:>| [^>]*>[^<])|<style|\sstyle=|\son[a-z]+=|javascript:`)
	titles := map[string]bool{}
	for name := range languages() {
		w.language = name
		for _, path := range w.pages(e, ids[0]) {
			a := w.get(path)
			require.Equal(t, "text/html; charset=utf-8", a.Header.Get("Content-Type"))
			require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
			require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
			require.Equal(t, "same-origin", a.Header.Get("Referrer-Policy"))
			policy := a.Header.Get("Content-Security-Policy")
			require.Contains(t, policy, "default-src 'none'")
			require.Contains(t, policy, "frame-ancestors 'none'")
			require.NotContains(t, policy, "unsafe")
			nonce := regexp.MustCompile(`script-src 'nonce-([A-Z2-7]{20,})'`).FindStringSubmatch(policy)
			require.NotNil(t, nonce)
			require.Equal(t, 2, strings.Count(a.text, `nonce="`+nonce[1]+`"`))
			require.Empty(t, inline.FindString(a.text), path)
			require.NotContains(t, a.text, "<b>bold")
			require.NotContains(t, a.text, "hunter2")
			require.NotRegexp(t, `\{[a-z0-9]+\}`, strings.ReplaceAll(a.text, "{what}", ""), "%s: a placeholder is left on %s", name, path)
			require.Contains(t, a.text, `<html lang="`+languages()[name].tag+`">`)
			require.Contains(t, a.text, `<main id="main"`)
			require.Equal(t, 1, strings.Count(a.text, "<h1"), path)
			title := regexp.MustCompile(`<title>(.*)</title>`).FindStringSubmatch(a.text)[1]
			if path == top {
				require.False(t, titles[title], "%s is as in another language", title)
				titles[title] = name != "pt" && name != english // both say endpoints
			}
		}
	}
}

// TestHead: a page can be asked for without its body.
func TestHead(t *testing.T) {
	w := newWorld(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodHead, w.server.URL+top, nil)
	require.NoError(t, err)
	a := w.do(r)
	require.Equal(t, http.StatusOK, a.StatusCode)
	require.Empty(t, a.text)
}

func TestFilesAreKept(t *testing.T) {
	w := newWorld(t, func(_ *webhook.Config, c *Config) {
		c.Style = ":root { --accent: teal }"
		c.Authorize = func(*http.Request, int64, string) error { return ErrSignedOut }
	})
	page := w.get(top)
	require.Equal(t, http.StatusUnauthorized, page.StatusCode)
	for attribute, contentType := range map[string]string{
		`<link rel="stylesheet" href="([^"]+)"`: "text/css; charset=utf-8", `<script src="([^"]+)"`: "text/javascript; charset=utf-8", `<link rel="icon" href="([^"]+)"`: "image/svg+xml",
	} {
		path := regexp.MustCompile(attribute).FindStringSubmatch(page.text)[1]
		a := w.get(path)
		require.Equal(t, http.StatusOK, a.StatusCode)
		require.Equal(t, contentType, a.Header.Get("Content-Type"))
		require.Contains(t, a.Header.Get("Cache-Control"), "immutable")
		require.NotEmpty(t, a.text)
		if strings.HasSuffix(path, ".css") {
			require.True(t, strings.HasSuffix(a.text, "--accent: teal }"))
		}
		require.Equal(t, http.StatusNotFound, w.get(path+"x").StatusCode)
	}
}

func TestFormsThatCannotBeRead(t *testing.T) {
	w := newWorld(t)
	send := func(contentType, body string) answered {
		r := w.form(top)
		r.Body, r.ContentLength = http.NoBody, 0
		r2, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.server.URL+top, strings.NewReader(body))
		require.NoError(t, err)
		r2.Header = r.Header
		r2.Header.Set("Content-Type", contentType)
		return w.do(r2)
	}
	require.Equal(t, http.StatusRequestEntityTooLarge, send("application/x-www-form-urlencoded", "description="+strings.Repeat("x", formMost)).StatusCode)
	require.Equal(t, http.StatusBadRequest, send("application/x-www-form-urlencoded", "a=%zz").StatusCode)
	require.Equal(t, http.StatusBadRequest, send("application/json", "{}").StatusCode)
	require.Equal(t, http.StatusBadRequest, send("multipart/form-data; boundary=x", "--x--").StatusCode)
	require.Equal(t, http.StatusBadRequest, send("", "a=b").StatusCode)
	require.Empty(t, w.endpoints())
	e, _ := w.endpoint()
	require.Equal(t, http.StatusBadRequest, w.post(pathOf(e, "/rotate"), "seen", "x").StatusCode)
	require.Equal(t, http.StatusBadRequest, w.post(pathOf(e, "/rotate")).StatusCode)
	require.Equal(t, http.StatusNotFound, w.post(pathOf(e, "/deliveries")).StatusCode)
	require.Equal(t, []webhook.Endpoint{e}, w.endpoints())
}

// TestLinksToForms: what only a form may ask for leads to its page, as it is asked
// for after a sign-in.
func TestLinksToForms(t *testing.T) {
	w := newWorld(t)
	e, _ := w.endpoint()
	ids := w.publish(map[string]any{"id": 1})
	for path, want := range map[string]string{
		"/hooks/workspaces/42": top, "/hooks/workspaces/42/": top, pathOf(e, "/pause"): pathOf(e, ""), pathOf(e, "/resume"): pathOf(e, ""),
		pathOf(e, "/test"): pathOf(e, ""), deliveryPath(e, ids[0], "/retry"): deliveryPath(e, ids[0], ""),
	} {
		require.Equal(t, want, w.get(path).Header.Get("Location"), path)
	}
	require.True(t, w.endpoints()[0].Active)
}

func TestPauseResumeDelete(t *testing.T) {
	w := newWorld(t)
	e, _ := w.endpoint()
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusInternalServerError) })
	w.publish(map[string]any{"id": 1})
	page := w.follow(w.post(pathOf(e, "/pause")))
	require.Contains(t, page.text, "The endpoint was paused.")
	require.Contains(t, page.text, "This endpoint is paused.")
	require.Contains(t, page.text, "when resumed")
	require.False(t, w.endpoints()[0].Active)
	refused := w.post(pathOf(e, "/test"))
	require.Equal(t, http.StatusConflict, refused.StatusCode)
	require.Contains(t, refused.text, "Resume it first.")
	require.Contains(t, refused.text, `data-page="`+pathOf(e, "")+`"`)
	list := w.follow(w.post(pathOf(e, "/resume"), "from", "list"))
	require.Equal(t, w.server.URL+top+"?done=resumed", list.Request.URL.String())
	require.Contains(t, list.text, "The endpoint was resumed.")
	require.True(t, w.endpoints()[0].Active)

	ask := w.get(pathOf(e, "/delete"))
	require.Contains(t, ask.text, "1 delivery still waits")
	page = w.follow(w.post(pathOf(e, "/delete")))
	require.Contains(t, page.text, "The endpoint was deleted.")
	require.Contains(t, page.text, "No endpoints yet")
	require.Empty(t, w.endpoints())
	// A second click, and every form of a page that is stale.
	for path, fields := range w.forms(e, 1) {
		if path != top {
			require.Equal(t, http.StatusNotFound, w.post(path, fields...).StatusCode, path)
		}
	}
}

func TestHealthIsShown(t *testing.T) {
	w := newWorld(t, func(c *webhook.Config, _ *Config) {
		c.Retry = webhook.RetryPolicy{Delays: []time.Duration{}}
		c.Health = webhook.HealthPolicy{DegradeAfter: 1, PauseAfter: 2}
	})
	e, _ := w.endpoint()
	w.answers(func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusInternalServerError) })
	w.publish(map[string]any{"id": 1})
	page := w.get(pathOf(e, ""))
	require.Contains(t, page.text, "Degraded")
	require.Contains(t, page.text, "This endpoint kept failing.")
	require.Contains(t, w.get(top).text, "1 failure in a row")
	time.Sleep(2 * time.Millisecond) // a failure in the millisecond of the last is the same one
	w.publish(map[string]any{"id": 2})
	w.language = "de"
	page = w.get(pathOf(e, ""))
	require.Contains(t, page.text, "Grund: 2 fehlgeschlagene Versuche in Folge.")
}

// TestRotate: each form rotates once, and a page that is stale not at all.
func TestRotate(t *testing.T) {
	w := newWorld(t)
	e, first := w.endpoint()
	form := w.get(pathOf(e, "/rotate"))
	seen := form.hidden(t, "seen")
	require.Equal(t, "0", seen)
	require.NotContains(t, form.text, "The last rotation is not over")

	const clicks = 6
	answers := make([]answered, clicks)
	var wait sync.WaitGroup
	for i := range clicks {
		wait.Go(func() { answers[i] = w.post(pathOf(e, "/rotate"), "seen", seen) })
	}
	wait.Wait()
	secret := ""
	for _, a := range answers {
		require.Equal(t, "no-store", a.Header.Get("Cache-Control"))
		if s := a.secret(); s != "" {
			require.Empty(t, secret, "two clicks made two secrets")
			secret = s
			require.Equal(t, http.StatusOK, a.StatusCode)
			require.Contains(t, a.text, "The old secret also signs until")
			continue
		}
		require.Equal(t, http.StatusConflict, a.StatusCode)
		require.Contains(t, a.text, "The secret was rotated already")
		require.Contains(t, a.text, `data-page="`+pathOf(e, "")+`"`)
	}
	require.NotEmpty(t, secret)
	require.NotEqual(t, first.Reveal(), secret)
	after := w.endpoints()[0]
	require.Equal(t, 1, after.Rotations)
	page := w.get(pathOf(e, ""))
	require.Contains(t, page.text, "The previous secret also signs until "+after.PreviousUntil.Format(exactForm))
	require.Contains(t, page.text, "(in 7 days)")
	require.Contains(t, page.text, "Rotated 1 time.")
	require.NotContains(t, page.text, secret)

	form = w.get(pathOf(e, "/rotate"))
	require.Contains(t, form.text, "The last rotation is not over")
	a := w.post(pathOf(e, "/rotate"), "seen", form.hidden(t, "seen"), "leaked", "1")
	require.NotEmpty(t, a.secret())
	require.Contains(t, a.text, "The old secret has ended")
	require.True(t, w.endpoints()[0].PreviousUntil.IsZero())
	require.NotContains(t, w.log.String(), "whsec_")

	discord, _, err := w.d.CreateEndpoint(t.Context(), webhook.EndpointParams{WorkspaceID: 42, Kind: "discord", URL: "https://discord.com/api/webhooks/1/abcdef", Events: []string{"link.*"}})
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, w.get(pathOf(discord, "/rotate")).StatusCode)
	require.Equal(t, http.StatusBadRequest, w.post(pathOf(discord, "/rotate"), "seen", "0").StatusCode)
	require.NotContains(t, w.get(pathOf(discord, "")).text, "Signing secret")
}

// TestAStoreThatFails: an apology, a line in the log, and what was typed.
func TestAStoreThatFails(t *testing.T) {
	w := newWorld(t)
	e, _ := w.endpoint()
	ids := w.publish(map[string]any{"id": 1})
	pages, forms := w.pages(e, ids[0]), w.forms(e, ids[0])
	require.NoError(t, w.store.Close())
	for _, path := range pages[2:11] {
		a := w.get(path)
		require.Equal(t, http.StatusInternalServerError, a.StatusCode, path)
		require.Contains(t, a.text, "It is not your fault.")
		require.NotContains(t, a.text, "store")
	}
	for path, fields := range forms {
		a := w.post(path, fields...)
		require.Equal(t, http.StatusInternalServerError, a.StatusCode, path)
		require.NotContains(t, a.text, "closed")
		if path == top {
			require.Contains(t, a.text, `value="https://example.com/typed"`)
		}
	}
	require.Contains(t, w.log.String(), "webhook: dashboard: a request failed")
	require.Contains(t, w.log.String(), "the store is closed")
}

func TestLanguageAndLocationOfTheHost(t *testing.T) {
	tokyo := time.FixedZone("JST", 9*3600)
	language := "ru-RU"
	w := newWorld(t, func(_ *webhook.Config, c *Config) {
		c.Language = func(*http.Request) string { return language }
		c.Location = func(*http.Request) *time.Location { return tokyo }
		c.Name, c.Home = "Elido & Co", "/home"
	})
	w.language = "de"
	e, _ := w.endpoint()
	a := w.get(pathOf(e, ""))
	require.Equal(t, "ru", a.Header.Get("Content-Language"))
	require.Contains(t, a.text, e.CreatedAt.In(tokyo).Format(exactForm))
	require.Contains(t, a.text, `href="/home"`)
	require.Contains(t, a.text, "Elido &amp; Co")
	language = "xx"
	require.Equal(t, "de", w.get(top).Header.Get("Content-Language"), "one that is not there leaves the choice to the browser")
}

func TestManyEndpointsAreOnPages(t *testing.T) {
	w := newWorld(t)
	for i := range endpointsPerPage + 3 {
		w.endpoint(func(p *webhook.EndpointParams) { p.URL = fmt.Sprintf("https://example.com/e%03d", i) })
	}
	a := w.get(top)
	require.Equal(t, endpointsPerPage, strings.Count(a.text, `<tr>`)-1)
	next := regexp.MustCompile(`href="([^"]*\?after=\d+)"`).FindStringSubmatch(a.text)
	require.NotNil(t, next)
	a = w.get(next[1])
	require.Equal(t, 3, strings.Count(a.text, `<tr>`)-1)
	require.Contains(t, a.text, "https://example.com/e052")
	require.NotRegexp(t, `href="[^"]*after=`, a.text)
	require.Equal(t, http.StatusOK, w.get(top+"?after=x").StatusCode)
}
