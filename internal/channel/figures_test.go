package channel

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFigures(t *testing.T) {
	for in, want := range map[string]string{
		"0": "0", "7": "7", "999": "999", "1000": "1,000", "50000": "50,000", "1234567.50": "1,234,567.50", "-1234.5": "-1,234.5", "-999": "-999",
		"12345678901234567890": "12,345,678,901,234,567,890", "1e6": "1,000,000", "-2.5E3": "-2,500", "1e999": "1e999", "1e-9": "0.000000001",
		"007": "007", "": "", "-": "-", ".5": ".5", "5.": "5.", "1,000": "1,000", "12:30": "12:30", "NaN": "NaN", "0x10": "0x10", "all": "all",
	} {
		assert.Equal(t, want, figure(in), in)
	}
	for _, test := range [][3]string{
		{"49.50", "EUR", "49.50 EUR"}, {"49.5", "eur", "49.50 EUR"}, {"1249.5", "USD", "1,249.50 USD"}, {"5000", "JPY", "5,000 JPY"}, {"1.234", "TND", "1.234 TND"},
		{"49.5", "", "49.5"}, {"1200", "points", "1,200 points"}, {"", "EUR", ""},
	} {
		assert.Equal(t, test[2], money(test[0], test[1]), test)
	}
	for _, test := range [][3]string{
		{"80000", "100000", "80%"}, {"1", "3", "33%"}, {"0", "5", "0%"}, {"50", "5", "1,000%"}, {"all", "5", ""}, {"5", "0", ""}, {"-5", "5", ""},
		{"NaN", "5", ""}, {"1e300", "1e-300", ""}, {"5", "Inf", ""},
	} {
		assert.Equal(t, test[2], share(test[0], test[1]), test)
	}
	for in, want := range map[string]string{
		"2026-09-21T09:14:02Z": "21 Sep 2026, 09:14 UTC", "2026-09-21T23:14:02.481375-05:00": "22 Sep 2026, 04:14 UTC", "2026-09-01": "1 Sep 2026",
		"tomorrow": "tomorrow", "2026-13-01": "2026-13-01", "": "",
	} {
		assert.Equal(t, want, readable(in))
	}
}

func TestShow(t *testing.T) {
	for _, test := range []struct{ data, member, label, value string }{
		{`{"created_at":"2026-09-21T09:14:02Z"}`, "created_at", "Created", "21 Sep 2026, 09:14 UTC"},
		{`{"due_at":1790416800}`, "due_at", "Due", "26 Sep 2026, 10:00 UTC"},
		{`{"due_at":1790416800000}`, "due_at", "Due", "26 Sep 2026, 10:00 UTC"},
		{`{"due_at":12}`, "due_at", "Due", "12"},
		{`{"created_by_user_id":1187}`, "created_by_user_id", "Created by", "team member #1187"},
		{`{"user_id":"usr_7"}`, "user_id", "User ID", "team member usr_7"},
		{`{"approved_by":{"name":"Dana"}}`, "approved_by", "Approved by", "Dana"},
		{`{"approved_by":1187}`, "approved_by", "Approved by", "team member #1187"},
		{`{"exceeded_by":2312}`, "exceeded_by", "Exceeded by", "2,312"},
		{`{"total":"1049.5","currency":"eur"}`, "total", "Total", "1,049.50 EUR"},
		{`{"total":1049.5}`, "total", "Total", "1,049.5"},
		{`{"paid":false,"currency":"EUR"}`, "paid", "Paid", "no"},
		{`{"growth_percent":12.5}`, "growth_percent", "Growth", "12.5%"},
		{`{"invoice_status":"past_due"}`, "invoice_status", "Invoice status", "past due"},
		{`{"status":"Past_Due now"}`, "status", "Status", "Past_Due now"},
		{`{"status_code":1404}`, "status_code", "Status code", "1404"},
		{`{"link_id":91834}`, "link_id", "Link ID", "91834"},
		{`{"clicks":91834}`, "clicks", "Clicks", "91,834"},
		{`{"tags":["2026",2026,null,"a_b"]}`, "tags", "Tags", "2026, 2026, a_b"},
		{`{"top":[{"slug":"a","clicks":6120,"link_id":7},{"slug":"b"}]}`, "top", "Top", "a (clicks: 6,120); b"},
		{`{"top":[{},{},{}]}`, "top", "Top", "3 items"},
		{`{"top":[{"n":1},{"n":2},{"n":3},{"n":4},{"n":5},{"n":6},{"n":7}]}`, "top", "Top", "N: 1; N: 2; N: 3; N: 4; N: 5; 2 more"},
		{`{"who":{"email":"d@a.example","name":"Dana","id":5}}`, "who", "Who", "Dana (d@a.example)"},
		{`{"size":{"width":1200,"unit":"px"}}`, "size", "Size", "Unit: px, width: 1,200"},
		{`{"vat_id":"DE1"}`, "vat_id", "VAT ID", "DE1"},
		{`{"a":null}`, "a", "A", ""},
		{`{"at":"x"}`, "at", "At", "x"},
	} {
		o, _ := readObject([]byte(test.data))
		assert.Equal(t, test.label, label(test.member))
		assert.Equal(t, test.value, o.show(test.member), test.data)
	}
}

func TestTones(t *testing.T) {
	for eventType, want := range map[string]tone{
		"order.paid": good, "order.created": good, "contract.ended": goodbye, "contract.expiring": warning, "trial.will_end": warning,
		"invoice.payment_failed": bad, "invoice.past_due": bad, "invoice.due": warning, "card.declined": bad, "ping": neutral, "": neutral,
		"created.failed": bad,
	} {
		assert.Equal(t, want, toneOf(eventType), eventType)
	}
	for eventType, want := range map[string]bool{
		"invoice.payment_failed": true, "subscription.past_due": true, "subscription.unpaid": true, "charge.declined": true,
		"payment.action_required": true, "payment.succeeded": false, "order.paid": false, "backup.failed": false, "invoice.due": false,
	} {
		assert.Equal(t, want, aboutPayment(eventType), eventType)
	}
}

func TestSubscriptionTitles(t *testing.T) {
	for action, want := range map[string]string{
		"activated": "The pro plan was activated", "past_due": "The pro plan is past due", "expired": "The pro plan has expired",
		"payment_failed": "A payment for the pro plan failed", "payment_succeeded": "A payment for the pro plan was received",
		"trial_will_end": "The trial of the pro plan ends soon", "trial_started": "The trial of the pro plan began",
		"paused": "The pro plan was paused", "seats_changed": "The pro plan: seats changed", "quantity.raised": "The pro plan: quantity raised",
	} {
		n := describe(Event{Type: "subscription." + action, Payload: []byte(`{"plan":"pro"}`)})
		assert.Equal(t, want, n.title.plain())
		n = describe(Event{Type: "subscription." + action, Payload: []byte(`{}`)})
		assert.Equal(t, strings.NewReplacer("The pro plan", "The subscription", "the pro plan", "the subscription").Replace(want), n.title.plain())
	}
}

// What may be a word of ours is made of letters, digits and spaces, whatever it is
// made from.
func TestLabelsHaveNoMarkup(t *testing.T) {
	for _, name := range []string{"**a**", "<b>", "@everyone", "#tag", "[a](https://b.example)", "a\u202eb", "a\nb", "`x`", "{}", "/start", "a@b.example"} {
		for _, s := range []string{label(name), sentence(name), eventName(name)} {
			assert.Empty(t, strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789 "), name)
		}
	}
	o := object{}
	assert.NoError(t, json.Unmarshal([]byte(`{"name":"\u200b\u2060 \u200d","slug":"a\u200bb","title":" ","x":"\u2066y\u2069"}`), &o))
	assert.Equal(t, "ab", o.name("name", "title", "slug"))
	assert.Equal(t, "y", o.text("x"))
}
