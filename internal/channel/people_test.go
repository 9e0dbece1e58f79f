package channel_test

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/internal/channel"
	"github.com/elido-app/webhook/internal/channel/channeltest"
)

// TestLinkTargets: a link is called what it leads to, and leads where it is of use:
// to the destination where the short link is gone or would count a click.
func TestLinkTargets(t *testing.T) {
	both := `"slug":"s","short_url":"https://eli.do/s","destination_url":"https://shop.example.com/a_(b)?c=)"`
	short, destination := "https://eli.do/s", "https://shop.example.com/a_(b)?c=)"
	for _, test := range []struct{ eventType, data, words, url string }{
		{"link.created", both, "Open short link", short},
		{"link.updated", both, "Open short link", short},
		{"link.created", `"destination_url":"https://shop.example.com/"`, "Open destination", "https://shop.example.com/"},
		{"link.deleted", both, "Open destination", destination},
		{"link.broken", both, "Open destination", destination},
		{"link.expired", both, "Open destination", destination},
		{"click", both, "Open destination", destination},
		{"qr.scan", `"short_url":"https://eli.do/s"`, "Open short link", short},
		{"bio.published", `"slug":"mara","url":"https://eli.do/@mara"`, "Open bio page", "https://eli.do/@mara"},
		{"ticket.opened", `"url":"https://help.example.com/7"`, "Open page", "https://help.example.com/7"},
		{"ticket.opened", `"url":"javascript:alert(1)","short_url":"https://eli.do/s"`, "Open short link", short},
		{"ticket.opened", `"callback_url":"https://help.example.com/7"`, "", ""},
	} {
		e := event(t, sample{Type: test.eventType, Data: json.RawMessage("{" + test.data + "}")})
		v, _ := deliver(t, channel.Discord, e)
		m := v.discord.Messages()[0]
		assert.Equal(t, test.url, m.Embeds[0].URL, test)
		v, _ = deliver(t, channel.Telegram, e)
		tm := v.telegram.Messages()[0]
		v, _ = deliver(t, channel.Sentry, e)
		message := v.sentry.Events()[0].Message
		if test.url == "" {
			assert.Empty(t, m.Links)
			assert.NotContains(t, tm.HTML, "<a ")
			assert.NotContains(t, message, "Open ")
			continue
		}
		require.Len(t, m.Links, 1)
		assert.Equal(t, test.words, m.Links[0].Text)
		opened, err := url.QueryUnescape(m.Links[0].URL) // the parentheses in it
		require.NoError(t, err)
		assert.Equal(t, test.url, opened)
		assert.Contains(t, tm.Entities, channeltest.TelegramEntity{Type: "text_link", Text: test.words, URL: test.url})
		assert.Contains(t, message, test.url)
	}
}

// TestWhatToDo: where somebody can do something about it, the message says what, in
// every chat, and that is where it is cut last.
func TestWhatToDo(t *testing.T) {
	for eventType, want := range map[string]string{
		"link.broken": "Check the destination.", "link.cap_reached": "raise its click limit", "link.expired": "later expiry date",
		"domain.ssl_failed": "Add the missing records", "usage.threshold_80": "ask the workspace's owner", "usage.threshold_100": "Ask the workspace's owner",
		"quota.warning": "ask the workspace's owner", "abuse.flagged": "ask support", "alert.threshold_exceeded": "Check whether this is expected.",
		"subscription.past_due": "Check the payment method.", "subscription.payment_failed": "Check the payment method.", "invoice.unpaid": "Check the payment method,",
		"subscription.trial_will_end": "before the trial ends", "link.created": "", "member.removed": "", "subscription.renewed": "", "order.paid": "",
	} {
		data, err := json.Marshal(map[string]any{"slug": "s", "error_message": strings.Repeat("x", 5000), "destination_url": strings.Repeat("y", 5000), "a": strings.Repeat("z", 5000)})
		require.NoError(t, err)
		e := event(t, sample{Type: eventType, Data: data})
		v, _ := deliver(t, channel.Discord, e)
		texts := []string{v.discord.Messages()[0].String()}
		v, _ = deliver(t, channel.Telegram, e)
		texts = append(texts, v.telegram.Messages()[0].Text)
		v, _ = deliver(t, channel.Sentry, e)
		texts = append(texts, v.sentry.Events()[0].Message)
		for _, text := range texts {
			assert.Equal(t, want != "", strings.Contains(text, "What to do: "), eventType)
			assert.Contains(t, text, want)
		}
	}
}

var (
	machineDate = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}`)
	machineText = regexp.MustCompile(`\b(null|true|false|map\[|User [0-9]+|[a-z]+_[a-z_]+)\b`)
	longNumber  = regexp.MustCompile(`(?:^|[^#0-9A-Za-z/.=-])[0-9]{4,}\b`)
)

// TestNothingRaw: what people read has no dates, numbers and words as machines
// write them, but ids that are named as such.
func TestNothingRaw(t *testing.T) {
	for _, s := range samples(t) {
		if s.Type == "audit.event" || s.Type == "order.paid" || s.Note == "huge" || strings.HasPrefix(s.Note, "nested") {
			continue // these show what is odd
		}
		v, _ := deliver(t, channel.Telegram, event(t, s))
		for text := range strings.Lines(v.telegram.Messages()[0].Text) {
			name, value, _ := strings.Cut(text, ": ")
			if strings.HasSuffix(name, "ID") || name == "Created by" || name == "Product" || name == "Title" || name == "Redirect code" {
				continue
			}
			value = regexp.MustCompile(`[0-9]{1,2} [A-Z][a-z]{2} [0-9]{4}`).ReplaceAllString(value, "")
			value = regexp.MustCompile(`https?://\S+`).ReplaceAllString(value, "")
			assert.NotRegexp(t, machineDate, value, s.Type)
			assert.NotRegexp(t, machineText, value, s.Type)
			assert.NotRegexp(t, longNumber, value, s.Type)
			assert.NotContains(t, value, `{"`)
		}
	}
}

// TestSentryGroups: what happens again to one thing is one issue, and what happens
// to another, or elsewhere, is not.
func TestSentryGroups(t *testing.T) {
	group := func(eventType, data string, workspace int64) string {
		e := event(t, sample{Type: eventType, Data: json.RawMessage(data)})
		e.WorkspaceID = workspace
		v, _ := deliver(t, channel.Sentry, e)
		return strings.Join(v.sentry.Events()[0].Fingerprint, "|")
	}
	for _, test := range []struct{ eventType, one, again, another string }{
		{"link.created", `{"id":7,"slug":"a"}`, `{"id":7,"slug":"b"}`, `{"id":8,"slug":"a"}`},
		{"link.broken", `{"link_id":7,"status_code":404}`, `{"link_id":7,"status_code":500}`, `{"link_id":8}`},
		{"link.updated", `{"link":{"id":7},"previous":{}}`, `{"id":7}`, `{"link":{"id":8}}`},
		{"link.expired", `{"slug":"a"}`, `{"slug":"a","destination_url":"x"}`, `{"slug":"b"}`},
		{"domain.ssl_failed", `{"hostname":"a.example","domain_id":1}`, `{"hostname":"a.example"}`, `{"hostname":"b.example"}`},
		{"member.removed", `{"user_id":7}`, `{"user_id":7,"email":"a@b.example"}`, `{"user_id":8}`},
		{"usage.threshold_80", `{"metric":"clicks","used":8}`, `{"metric":"clicks","used":9}`, `{"metric":"links"}`},
		{"subscription.past_due", `{"subscription_id":"a","plan":"pro"}`, `{"subscription_id":"a","plan":"max"}`, `{"subscription_id":"b","plan":"pro"}`},
		{"alert.threshold_exceeded", `{"alert_id":1,"value":2}`, `{"alert_id":1,"value":3}`, `{"alert_id":2,"value":2}`},
		{"audit.event", `{"action":"link.update","resource_type":"link","resource_id":"7"}`, `{"action":"link.update","resource_type":"link","resource_id":"7","id":9}`, `{"action":"link.update","resource_type":"link","resource_id":"8"}`},
		{"conversion", `{"link_id":7,"conversion_id":"a","event_name":"sale"}`, `{"link_id":7,"conversion_id":"b","event_name":"sale"}`, `{"link_id":8,"conversion_id":"a","event_name":"sale"}`},
		{"campaign.ended", `{"campaign_id":1}`, `{"campaign_id":1,"name":"x"}`, `{"campaign_id":2}`},
		{"bio.click", `{"bio_id":1,"link_id":1}`, `{"bio_id":1,"link_id":1,"country":"DE"}`, `{"bio_id":2,"link_id":1}`},
		{"invoice.paid", `{"invoice_id":1,"id":5}`, `{"invoice_id":1,"id":6}`, `{"invoice_id":2,"id":5}`},
		{"order.paid", `{"order":{"id":1}}`, `{"order":{"id":1,"name":"x"}}`, `{"order":{"id":2}}`},
		{"ticket.closed", `{"number":"A"}`, `{"number":"A","x":1}`, `{"number":"B"}`},
	} {
		one := group(test.eventType, test.one, 42)
		assert.Equal(t, one, group(test.eventType, test.again, 42), test)
		assert.NotEqual(t, one, group(test.eventType, test.another, 42), test)
		assert.NotEqual(t, one, group(test.eventType, test.one, 43), test)
	}
	assert.Equal(t, group("workspace.updated", `{"id":42,"name":"a"}`, 42), group("workspace.updated", `{"id":42,"name":"b"}`, 42))
	assert.Equal(t, group("daily.summary", `{"date":"2026-09-20"}`, 42), group("daily.summary", `{"date":"2026-09-21"}`, 42))
}
