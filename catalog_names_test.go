package webhook

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestValidName(t *testing.T) {
	grammar := regexp.MustCompile(`\A[a-z0-9_]+(\.[a-z0-9_]+)*\z`)
	for _, name := range []string{
		"click", "link.created", "a.b.c", "0", "_", "usage.threshold_80", strings.Repeat("a", 128),
		"", ".", "a.", ".a", "a..b", "A", "link-created", "link created", "link.*", "*", "a\n", "\u00e9", "a\x00", strings.Repeat("a", 129),
	} {
		require.Equal(t, len(name) <= 128 && grammar.MatchString(name), validName(name), "%q", name)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOfN(rapid.RuneFrom([]rune("az09_..A-*\n\u00e9")), 0, 6, -1).Draw(t, "name")
		require.Equal(t, grammar.MatchString(name), validName(name))
	})
}

func TestMatches(t *testing.T) {
	c := DefaultCatalog()
	require.Equal(t, []string{"link.clicked.aggregated", "link.clicked.*", "link.*"}, c.types["link.clicked.aggregated"].matches)
	require.Equal(t, []string{"test"}, matchesOf("test"))
	require.Equal(t, []string{"new.type", "new.*"}, matchesOf("new.type"))
}

// A subscription selects a type exactly if it is accepted and among the type's
// matches, whatever is in the catalog.
func TestMatchesAgreesWithPrefixes(t *testing.T) {
	c := DefaultCatalog()
	for _, eventType := range c.Types() {
		for _, match := range matchesOf(eventType.Name) {
			prefix, isPrefix := strings.CutSuffix(match, "*")
			if isPrefix {
				require.True(t, strings.HasPrefix(eventType.Name, prefix))
			} else {
				require.Equal(t, eventType.Name, match)
			}
			if eventType.Subscribable() {
				got, err := c.checkSubscription([]string{match})
				require.NoError(t, err)
				require.Equal(t, []string{match}, got)
			}
		}
	}
}

func TestCheckPublish(t *testing.T) {
	c := DefaultCatalog()
	for _, eventType := range c.Types() {
		if eventType.Subscribable() {
			require.NoError(t, c.checkPublish(eventType.Name))
		}
	}
	for name, want := range map[string]string{
		"":                         "is required",
		"test":                     `"test" is reserved for test sends`,
		"qr.generated":             `"qr.generated" is planned, and not published yet`,
		"link.create":              `"link.create" is an unknown event type; did you mean "link.created"?`,
		"lnk.created":              `"lnk.created" is an unknown event type; did you mean "link.created"?`,
		"link.cretaed":             `"link.cretaed" is an unknown event type; did you mean "link.created"?`,
		"link_created":             `"link_created" is an unknown event type; did you mean "link.created"?`,
		"subscription.cancelled":   `"subscription.cancelled" is an unknown event type; did you mean "subscription.canceled"?`,
		"link":                     `"link" is an unknown event type` + ownType,
		"links.*":                  `"links.*"` + notAName,
		"qr.generate":              `"qr.generate" is an unknown event type` + ownType,
		"order.paid":               `"order.paid" is an unknown event type` + ownType,
		"Link.Created":             `"Link.Created"` + notAName + `; did you mean "link.created"?`,
		"linkCreated":              `"linkCreated"` + notAName + `; did you mean "link.created"?`,
		"link.created\n":           `"link.created\n"` + notAName + `; did you mean "link.created"?`,
		"l\u00efnk.created":        `"l\u00efnk.created"` + notAName + `; did you mean "link.created"?`,
		strings.Repeat("x", 5_000): `a name of 5000 bytes` + notAName,
	} {
		err := c.checkPublish(name)
		require.EqualError(t, err, "webhook: type: "+want)
		require.IsType(t, &InvalidError{}, err)
	}
}

const ownType = "; a type of your own is registered with Catalog.Add"

func TestCheckSubscription(t *testing.T) {
	c := DefaultCatalog()
	got, err := c.checkSubscription([]string{"link.*", "domain.verified", "link.*", "link.created", "domain.verified", "domain.*", "audit.event"})
	require.NoError(t, err)
	require.Equal(t, []string{"link.*", "domain.verified", "link.created", "domain.*", "audit.event"}, got)
	got, err = c.checkSubscription(nil)
	require.NoError(t, err)
	require.NotNil(t, got)
	require.Empty(t, got)

	for entry, want := range map[string]string{
		"":                              "is empty",
		"*":                             `"*" is not accepted: name types, or prefixes such as "link.*"`,
		"test":                          `"test" is reserved for test sends, which need no subscription`,
		"test.*":                        `"test.*" is a prefix of no event type`,
		"qr.generated":                  `"qr.generated" is planned, and cannot be subscribed to yet`,
		"qr.*":                          `"qr.*" has only planned types, which cannot be subscribed to yet`,
		"link.clicked.*":                `"link.clicked.*" has only planned types, which cannot be subscribed to yet`,
		"link.create":                   `"link.create" is an unknown event type; did you mean "link.created"?`,
		"lnk.created":                   `"lnk.created" is an unknown event type; did you mean "link.created"?`,
		"links.*":                       `"links.*" is a prefix of no event type; did you mean "link.*"?`,
		"link":                          `"link" is an unknown event type; did you mean "link.*"?`,
		"subscription":                  `"subscription" is an unknown event type; did you mean "subscription.*"?`,
		"link.":                         `"link."` + notAName + `; did you mean "link.*"?`,
		"link*":                         `"link*"` + notAName + `; did you mean "link.*"?`,
		"Link.*":                        `"Link.*"` + notAName + `; did you mean "link.*"?`,
		"order.*":                       `"order.*" is a prefix of no event type`,
		"order.paid":                    `"order.paid" is an unknown event type`,
		".*":                            `".*"` + notAName,
		"*.created":                     `"*.created"` + notAName,
		"link.*.*":                      `"link.*.*"` + notAName + `; did you mean "link.*"?`,
		strings.Repeat("x", 200) + ".*": `a name of 202 bytes` + notAName,
	} {
		_, err := c.checkSubscription([]string{"link.*", entry})
		require.EqualError(t, err, "webhook: events[1]: "+want)
		require.IsType(t, &InvalidError{}, err)
	}
}

func TestCheckSubscriptionLimit(t *testing.T) {
	c := new(Catalog)
	var entries []string
	for i := range 101 {
		name := fmt.Sprintf("order.step_%d", i)
		require.NoError(t, c.Add(EventType{Name: name}))
		entries = append(entries, name)
	}
	_, err := c.checkSubscription(slices.Repeat(entries[:100], 3))
	require.NoError(t, err, "repeats count once")
	_, err = c.checkSubscription(entries)
	require.EqualError(t, err, "webhook: events: has more than 100 entries")
}

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "acb", 1}, {"ab", "ba", 1}, {"kitten", "sitting", 3},
	} {
		require.Equal(t, test.want, distance(test.a, test.b), "%q %q", test.a, test.b)
	}
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[ab.]{0,6}`)
		a, b := word.Draw(t, "a"), word.Draw(t, "b")
		d := distance(a, b)
		require.Equal(t, d, distance(b, a))
		require.Equal(t, a == b, d == 0)
		require.LessOrEqual(t, d, max(len(a), len(b)))
		require.GreaterOrEqual(t, d, max(len(a), len(b))-min(len(a), len(b)))
	})
	long := strings.Repeat("a", maxNameLength)
	require.Equal(t, 0, distance(long, long))
}
