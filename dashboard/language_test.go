package dashboard

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/internal/egress"
)

// categories are the plural categories of whole numbers (CLDR 46).
var categories = map[string][]string{
	"en": {"one", "other"}, "de": {"one", "other"}, "ru": {"few", "many", "one"}, "ja": {"other"}, "pt": {"many", "one", "other"},
}

func placeholders(text string) []string {
	list := regexp.MustCompile(`\{[a-z0-9]+\}`).FindAllString(text, -1)
	sort.Strings(list)
	return slices.Compact(list)
}

func TestEveryLanguageHasEveryMessage(t *testing.T) {
	require.Len(t, languages(), len(categories))
	for name, l := range languages() {
		for key, original := range languages()[english].texts {
			m, ok := l.texts[key]
			require.True(t, ok, "%s lacks %q", name, key)
			_, plain := original[""]
			if plain {
				require.Len(t, m, 1, "%s: %q does not count in English", name, key)
				require.NotEmpty(t, m[""], "%s: %q", name, key)
				require.Equal(t, placeholders(original[""]), placeholders(m[""]), "%s: %q", name, key)
				continue
			}
			var have []string
			for category, text := range m {
				have = append(have, category)
				// "the newest one" may do without its number.
				require.Subset(t, placeholders(original["other"]), placeholders(text), "%s: %q, %s", name, key, category)
				if category != "one" {
					require.Contains(t, text, "{n}", "%s: %q, %s", name, key, category)
				}
			}
			sort.Strings(have)
			require.Equal(t, categories[name], have, "%s: the plural categories of %q", name, key)
		}
		require.Len(t, l.texts, len(languages()[english].texts), "%s has messages that English has not", name)
	}
}

// TestMessagesAreTranslated finds what was copied from English and left.
func TestMessagesAreTranslated(t *testing.T) {
	// The same in several languages.
	same := regexp.MustCompile(`^(kind\.(event|siem|discord|telegram|sentry)|unit\..*|form\.(url|dsn|chat|optional)|nav\.workspace|live\.switch|` +
		`endpoint\.state|delivery\.(status|payload|facts)|stats\.median|endpoints\.title)$`)
	for name, l := range languages() {
		for key, m := range l.texts {
			if name != english && !same.MatchString(key) {
				require.NotEqual(t, languages()[english].texts[key], m, "%s: %q is as in English", name, key)
			}
		}
	}
}

// TestMessagesAreUsed checks that every message a page or a line of code asks for
// is there, and that no message is left over.
func TestMessagesAreUsed(t *testing.T) {
	used := map[string]bool{}
	files, _ := filepath.Glob("*.go")
	pages, _ := filepath.Glob("templates/*.html")
	key := regexp.MustCompile("[\"`]([a-z0-9]+(?:\\.[a-z0-9_-]+)+)[\"`]")
	prefix := regexp.MustCompile(`"([a-z]+\.(?:[a-z]+\.)?)"`)
	var prefixes []string
	for _, name := range append(files, pages...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`[{( ]t "([^"]+)"|\.t\("([^"]+)"[,)]`).FindAllStringSubmatch(string(text), -1) {
			require.Contains(t, languages()[english].texts, m[1]+m[2], "%s asks for a message that is not there", name)
		}
		for _, m := range key.FindAllStringSubmatch(string(text), -1) {
			used[m[1]] = true
		}
		for _, m := range prefix.FindAllStringSubmatch(string(text), -1) {
			prefixes = append(prefixes, m[1])
		}
	}
	for k := range languages()[english].texts {
		made := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(k, p) })
		require.True(t, used[k] || made, "nobody uses the message %q", k)
	}
}

// TestPluralRules: samples of https://www.unicode.org/cldr/charts/46/supplemental/language_plural_rules.html
func TestPluralRules(t *testing.T) {
	for name, samples := range map[string]map[string][]int{
		"en": {"one": {1}, "other": {0, 2, 5, 11, 21, 100, 1_000_000}},
		"de": {"one": {1}, "other": {0, 2, 5, 11, 21, 100, 1_000_000}},
		"ja": {"other": {0, 1, 2, 15, 100, 1_000_000}},
		"pt": {"one": {0, 1}, "many": {1_000_000, 2_000_000, 6_000_000}, "other": {2, 3, 17, 100, 1_000, 1_000_001, 1_100_000}},
		"ru": {
			"one": {1, 21, 31, 41, 51, 61, 71, 81, 101, 1_001}, "few": {2, 3, 4, 22, 23, 24, 32, 62, 102, 1_002},
			"many": {0, 5, 6, 10, 11, 12, 13, 14, 15, 19, 25, 100, 111, 112, 1_000, 1_011, 1_000_000},
		},
	} {
		for category, numbers := range samples {
			for _, n := range numbers {
				require.Equal(t, category, languages()[name].plural(n), "%s: %d", name, n)
			}
		}
	}
	ru := languages()["ru"]
	require.Equal(t, "1 минуту назад", ru.relative(-time.Minute))
	require.Equal(t, "3 минуты назад", ru.relative(-3*time.Minute))
	require.Equal(t, "11 минут назад", ru.relative(-11*time.Minute))
	require.Equal(t, "через 22 секунды", ru.relative(22*time.Second))
	require.Equal(t, "há 1 hora", languages()["pt"].relative(-time.Hour))
	require.Equal(t, "5分後", languages()["ja"].relative(5*time.Minute))
}

func TestNegotiate(t *testing.T) {
	for header, want := range map[string]string{
		"": "en", "*": "en", "fr": "en", "de": "de", "de-AT,de;q=0.9,en;q=0.8": "de", "fr-CH, fr;q=0.9, ru;q=0.8, *;q=0.5": "ru",
		"en;q=0.5, ja": "ja", "ja;q=0.5, pt-PT;q=0.7": "pt-BR", "PT-br": "pt-BR", "de;q=0, en": "en", "de ; q=0.3, ru; q=0.4": "ru",
		"de;q=high, ru;q=0.1": "ru", "de;q=NaN,ru;q=0.5": "ru", "de;q=2, ru": "ru", ";;,,;q": "en", "\xff\x00": "en",
	} {
		require.Equal(t, want, negotiate(header).tag, header)
	}
	require.Nil(t, find("xx"))
	require.Nil(t, find(""))
	require.Equal(t, "de", find("de_DE").tag)
}

func TestNumbers(t *testing.T) {
	en, de, ru := languages()["en"], languages()["de"], languages()["ru"]
	require.Equal(t, "1,234,567", en.integer(1234567))
	require.Equal(t, "-1.234", de.integer(-1234))
	require.Equal(t, "1\u00a0234,5", ru.number(1234.5, 2))
	require.Equal(t, "999", en.integer(999))
	for d, want := range map[time.Duration]string{
		0: "0 ms", 87 * time.Microsecond: "0,1 ms", 9_400 * time.Microsecond: "9,4 ms", 12_700 * time.Microsecond: "13 ms",
		999 * time.Millisecond: "999 ms", time.Second: "1 s", 1_234 * time.Millisecond: "1,23 s", 10 * time.Second: "10 s",
	} {
		require.Equal(t, want, de.latency(d))
	}
	require.Equal(t, "", en.share(0, 0))
	require.Equal(t, "100%", en.share(7, 7))
	require.Equal(t, "0%", en.share(0, 7))
	require.Equal(t, "99.9%", en.share(99_999, 100_000), "not all of it")
	require.Equal(t, "0.1%", en.share(1, 100_000), "not nothing")
	require.Equal(t, "33,3\u00a0%", de.share(1, 3))
	require.Equal(t, "512 B", en.bytes(512))
	require.Equal(t, "1.5 KiB", en.bytes(1536))
}

func TestRelativeTime(t *testing.T) {
	en := languages()["en"]
	for d, want := range map[time.Duration]string{
		0: "just now", -1900 * time.Millisecond: "just now", -2 * time.Second: "2 seconds ago", -59999 * time.Millisecond: "59 seconds ago",
		-time.Minute: "1 minute ago", -time.Hour + 1: "59 minutes ago", -time.Hour: "1 hour ago", -48*time.Hour + 1: "47 hours ago",
		-48 * time.Hour: "2 days ago", -400 * 24 * time.Hour: "400 days ago",
		time.Millisecond: "in 1 second", 59 * time.Second: "in 59 seconds", 59*time.Second + 500*time.Millisecond: "in 1 minute", 5 * time.Minute: "in 5 minutes",
		4*time.Minute + 1: "in 4 minutes", 59*time.Minute + 59*time.Second: "in 1 hour", time.Hour + time.Millisecond: "in 1 hour",
		24 * time.Hour: "in 24 hours", 47*time.Hour + 59*time.Minute: "in 2 days", 7*24*time.Hour - time.Second: "in 7 days",
	} {
		require.Equal(t, want, en.relative(d), d.String())
	}
}

// TestTypesAreDescribedInEveryLanguage: a catalog's own words stay as they are.
func TestTypesAreDescribedInEveryLanguage(t *testing.T) {
	catalog := webhook.DefaultCatalog()
	require.NoError(t, catalog.Add(webhook.EventType{Name: "invoice.paid", Description: "An invoice was paid."}))
	require.NoError(t, catalog.Add(webhook.EventType{Name: "link.broken", Description: "Ours is another."}))
	seen := 0
	for _, types := range [][]webhook.EventType{catalog.Types(), webhook.TrafficEvents()} {
		for _, e := range types {
			for name, l := range languages() {
				switch {
				case e.Name == "invoice.paid" || e.Name == "link.broken" || !e.Subscribable() || name == english:
					require.Equal(t, e.Description, l.typeText(e), e.Name)
				default:
					require.NotEqual(t, e.Description, l.typeText(e), "%s: %s", name, e.Name)
					seen++
				}
			}
		}
	}
	require.Greater(t, seen, 100)
}

// TestEveryRuleIsKnown provokes what the Dispatcher says about each field of the
// form, and checks that the pages can say it in every language.
func TestEveryRuleIsKnown(t *testing.T) {
	w := newWorld(t)
	standard, err := webhook.New(w.store, webhook.Config{Signer: webhook.Signer{Schemes: []webhook.Scheme{webhook.StandardWebhooks}}})
	require.NoError(t, err)
	strict, err := webhook.New(w.store, webhook.Config{})
	require.NoError(t, err)
	headers := func(name, value string) webhook.EndpointParams {
		return webhook.EndpointParams{Headers: map[string]string{name: value}}
	}
	token := "110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw9"
	many := func(n int, format string) []string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(format, i)
		}
		return list
	}
	cases := []webhook.EndpointParams{
		{Kind: "fax"}, {Description: strings.Repeat("x", 1025)}, {Description: "\xff"}, {MaxInFlight: -1}, {MaxInFlight: 1001}, {RateLimit: -1}, {RateLimit: 1e9},
		{Secret: webhook.NewSecret("short")}, {Secret: webhook.NewSecret(strings.Repeat("x", 30) + "\x00")}, {Secret: webhook.NewSecret(strings.Repeat("x", 30) + " ")},
		headers("Host", "x"), headers("X-Long", strings.Repeat("x", 5000)), headers("X-Umlaut", "ä"), headers("no name", "x"),
		{Headers: map[string]string{"X-A": "1", "x-a": "2"}},
		{Headers: func() map[string]string {
			h := map[string]string{}
			for _, name := range many(33, "X-%d") {
				h[name] = "x"
			}
			return h
		}()},
		{Events: []string{"link.craeted"}}, {Events: []string{"lnk.*"}}, {Events: []string{"zebra.born"}}, {Events: []string{"zebra.*"}}, {Events: []string{"click.created"}},
		{Events: []string{"click.*"}}, {Events: []string{"*"}}, {Events: []string{"test"}}, {Events: []string{"no name"}}, {Events: []string{"LINK.Created"}}, {Events: []string{""}},
		{Events: many(101, "link.created%d")},
		{Kind: webhook.KindDiscord, URL: "https://example.com"}, {Kind: webhook.KindDiscord, URL: "https://discord.com/api/webhooks/123"},
		{Kind: webhook.KindDiscord, URL: "https://discord.com/api/webhooks/123/abc?x=1"}, {Kind: webhook.KindDiscord, URL: " "},
		{Kind: webhook.KindTelegram, Config: map[string]string{}}, {Kind: webhook.KindTelegram, Config: map[string]string{"chat_id": "x", "bot_token": token}},
		{Kind: webhook.KindTelegram, Config: map[string]string{"chat_id": "1", "bot_token": ""}}, {Kind: webhook.KindTelegram, Config: map[string]string{"chat_id": "1", "bot_token": "x"}},
		{Kind: webhook.KindSentry, Config: map[string]string{}}, {Kind: webhook.KindSentry, Config: map[string]string{"dsn": "x"}},
	}
	for _, u := range []string{
		" ", strings.Repeat("x", 2049), "https://ä.example", "https://example.com/ x", "https://example.com/#x", "ftp://example.com", "https://u:p@example.com",
		"https://", "https://example.com:0/", "https://-x/", "https://1.2.3/", "https://x.localhost/", "https://example.com/%zz", "http://example.com", "https://10.0.0.1/",
		"http://127.0.0.1/",
	} {
		cases = append(cases, webhook.EndpointParams{URL: u})
	}
	check := func(err error, what any) {
		t.Helper()
		var invalid *webhook.InvalidError
		require.ErrorAs(t, err, &invalid, "%+v", what)
		requireKnown(t, invalid.Rule)
	}
	for _, p := range cases {
		p.WorkspaceID = 42
		if p.URL == "" && p.Kind != webhook.KindTelegram && p.Kind != webhook.KindSentry {
			p.URL = "https://example.com"
		}
		if p.Events == nil {
			p.Events = []string{"link.*"}
		}
		_, _, err := strict.CreateEndpoint(t.Context(), p)
		check(err, p)
	}
	_, _, err = standard.CreateEndpoint(t.Context(), webhook.EndpointParams{
		WorkspaceID: 42, URL: "https://example.com", Events: []string{"link.*"}, Secret: webhook.NewSecret("whsec_" + strings.Repeat("!", 30)),
	})
	check(err, "StandardWebhooks")
	_, err = strict.Deliveries(t.Context(), webhook.DeliveryQuery{WorkspaceID: 42, Cursor: "x"})
	check(err, "cursor")
	_, err = strict.Deliveries(t.Context(), webhook.DeliveryQuery{WorkspaceID: 42, Status: "x"})
	check(err, "status")
}

// TestEveryFailureIsKnown: what the log says of attempts that failed.
func TestEveryFailureIsKnown(t *testing.T) {
	for f := egress.RequestFailed; f <= egress.ChainTooLong; f++ {
		requireKnown(t, f.Error())
	}
	require.Equal(t, egress.RequestFailed.Error(), (egress.ChainTooLong + 1).Error(), "another failure was added: the pages must know it")
	de := languages()["de"]
	requireKnown(t, "HTTP 302 Found (redirects are not followed)")
	require.Equal(t, "HTTP 302 Found (Weiterleitungen wird nicht gefolgt)", de.rule("HTTP 302 Found (redirects are not followed)"))
	require.Equal(t, "Verbindung abgelehnt (wird nicht erneut versucht)", de.rule("connection refused (not tried again)"))
	require.Equal(t, "50 fehlgeschlagene Versuche in Folge", de.rule("paused after 50 failed attempts in a row"))
	require.Equal(t, "Some text of a vendor's", de.rule("Some text of a vendor's"))
	require.Empty(t, de.rule(""))
}

// requireKnown checks that the pages know a text of the Dispatcher's in every
// language.
func requireKnown(t *testing.T, text string) {
	t.Helper()
	for name, l := range languages() {
		said := l.rule(text)
		if name != english { // which may put it in the same words
			require.NotEqual(t, text, said, name)
		}
		require.NotContains(t, said, "{", "%s: %s", name, text)
		require.NotContains(t, said, "Config.", "%s: %s", name, text)
	}
}
