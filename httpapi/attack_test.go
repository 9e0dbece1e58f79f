package httpapi_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every field, one by one, with what does not belong there.
func TestBadFields(t *testing.T) {
	w := newWorld(t, options{})
	e := w.endpoint(workspace)
	long := strings.Repeat("x", 10_000)
	str := func(values ...string) (out []string) { // as JSON
		for _, v := range values {
			out = append(out, toJSON(t, v))
		}
		return out
	}
	notText := []string{`null`, `1`, `true`, `[]`, `{}`, `1e400`}
	notNumber := []string{`null`, `"1"`, `true`, `[]`, `{}`, `1e400`, `-1`}
	for field, values := range map[string]map[string][]string{ // field: the field blamed: values
		"url": {"url": append(str(
			"", "x", "ftp://customer.example/", "http://customer.example/", "https://user:pw@customer.example/", "https://customer.example/#f", "https://",
			"https://127.0.0.1/", "javascript:alert(1)", "https://customer.example/\x00", "https://customer.example/ x", "https://customer.example/\n", "<script>", "https://customer.example/"+long,
		), notText...)},
		"events": {
			"events": {`null`, `[]`, `{}`, `"link.*"`, `1`, `true`},
			"events[0]": append(
				[]string{`[1]`, `[null]`, `[["link.*"]]`, `[{}]`, `[true]`},
				`["*"]`, `[""]`, `["test"]`, `["click.created"]`, `["link.create"]`, `["<script>"]`, `["link.created\u0000"]`, `["`+long+`"]`, `["LINK.CREATED"]`),
			"events[1]": {`["link.*","nothing"]`, `["link.*",null]`},
		},
		"description": {"description": append(str("a\x00b", strings.Repeat("ü", 513)), notText...)},
		"kind":        {"kind": append(str("", "email", "EVENT", "event\x00", long), notText...)},
		"config":      {"config": {`null`, `1`, `"x"`, `[]`, `true`, `{"bot_token":"x"}`, `{"a":"1","a":"2"}`}, "config.a": {`{"a":1}`, `{"a":null}`, `{"a":{}}`}},
		"headers": {
			"headers":   {`null`, `1`, `"x"`, `[]`, `true`, `{"Host":"evil"}`, `{"X-Elido-Signature":"v1=00"}`, `{"":"x"}`, `{"a b":"x"}`, `{"X":"a\r\nB: c"}`, `{"X":"\u0000"}`, `{"X":"ü"}`, `{"X":"a","X":"b"}`, `{"X":"a","x":"b"}`, `{"X":"` + long + `"}`, many(33)},
			"headers.X": {`{"X":1}`, `{"X":null}`, `{"X":["a"]}`},
		},
		"max_in_flight": {"max_in_flight": append([]string{`1001`, `1.5`, `9007199254740992`, `1e300`, `99999999999999999999`}, notNumber...)},
		"rate_limit":    {"rate_limit": append([]string{`10001`, `0.000001`, `1e300`, `99999999999999999999`}, notNumber...)},
		"secret":        {"secret": append(str("", "short", long, strings.Repeat("x ", 20), strings.Repeat("x\x00", 20)), notText...)},
		"is_active":     {"is_active": {`null`, `0`, `1`, `"true"`, `[]`, `{}`}},
		"id":            {"id": {`1`, `null`}},
		"workspace_id":  {"workspace_id": {`43`}},
		"URL":           {"URL": {`"https://customer.example/"`}},
		"Is_Active":     {"Is_Active": {`true`}},
		"<script>":      {"<script>": {`1`}},
		"__proto__":     {"__proto__": {`{}`}},
		"":              {"": {`1`}},
	} {
		for _, blamed := range slices.Sorted(maps.Keys(values)) {
			for _, value := range values[blamed] {
				members := map[string]string{"url": `"https://customer.example/"`, "events": `["link.*"]`}
				members[field] = value
				if field != "is_active" { // a new endpoint has none to set
					w.call("POST", webhooks, join(t, members)).problem(422, "invalid", blamed)
				}
				if field == "secret" {
					continue // nor can it be changed
				}
				w.call("PUT", path(e.ID), join(t, members)).problem(422, "invalid", blamed)
				w.call("PATCH", path(e.ID), join(t, map[string]string{field: value})).problem(422, "invalid", blamed)
			}
		}
	}
	w.call("POST", webhooks, `{"is_active":false,"url":"https://customer.example/","events":["link.*"]}`).problem(422, "invalid", "is_active")
	w.call("PATCH", path(e.ID), `{"secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}`).problem(422, "invalid", "secret")

	// Everything that is wrong is told at once, and where it is.
	r := w.call("POST", webhooks, `{"url":1,"events":"x","nope":1,"headers":{"a/b~c é":2}}`).problem(422, "invalid", "url", "events", "headers.a/b~c é", "nope")
	require.Contains(t, r.raw, `"pointer":"#/headers/a~1b~0c%20%C3%A9"`)
	require.Contains(t, w.call("POST", webhooks, `{"url":"https://customer.example/","events":["x"]}`).raw, `"pointer":"#/events/0"`)
	require.Contains(t, w.call("POST", webhooks, `{"Url":"x"}`).raw, `did you mean \"url\"?`)

	// Nothing came of it.
	after, err := w.Endpoint(t.Context(), workspace, e.ID)
	require.NoError(t, err)
	require.Equal(t, e, after)
	list, err := w.Endpoints(t.Context(), workspace, 0, 0)
	require.NoError(t, err)
	require.Len(t, list, 1)
}

func many(n int) string {
	headers := make([]string, n)
	for i := range headers {
		headers[i] = fmt.Sprintf(`"X-%d":"x"`, i)
	}
	return "{" + strings.Join(headers, ",") + "}"
}

func join(t *testing.T, members map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		list = append(list, toJSON(t, name)+":"+members[name])
	}
	return "{" + strings.Join(list, ",") + "}"
}

// What is at a limit is taken as it is.
func TestGoodFieldsAtTheirLimits(t *testing.T) {
	w := newWorld(t, options{})
	for field, value := range map[string]string{
		"description":   toJSON(t, "<script>"+strings.Repeat("ü", 505)+"\U0001F517\r\n"),
		"headers":       many(32),
		"max_in_flight": `1.0e3`,
		"rate_limit":    `1E4`,
		"secret":        toJSON(t, strings.Repeat("s", 256)),
		"kind":          `"\u0065vent"`,
		"events":        `["link.*","link.*","\u006cink.created"]`,
		"url":           `"https://customer.example/ünicode?q=<x>"`,
	} {
		members := map[string]string{"url": `"https://customer.example/"`, "events": `["link.*"]`}
		members[field] = value
		r := w.call("POST", webhooks, join(t, members))
		if field == "url" && r.status == 422 { // the rules of URLs are not this package's
			continue
		}
		r.is(201)
		if field == "description" {
			require.JSONEq(t, value, toJSON(t, r.at("endpoint", "description")))
		}
	}
	w.call("POST", webhooks, ` {"url":"https://customer.example/","events":["link.*"]} `+"\n").is(201)
	w.call("POST", webhooks, `{"url":"https://customer.example/","events":["link.*"]}`, "Content-Type", `Application/JSON; Charset="UTF-8"`).is(201)
	w.call("POST", webhooks, `{"url":"https://customer.example/","events":["link.*"]}`, "Content-Encoding", "identity").is(201)
}

func TestBadBodies(t *testing.T) {
	w := newWorld(t, options{})
	e := w.endpoint(workspace)
	good := `{"url":"https://customer.example/","events":["link.*"]}`
	for _, body := range []string{
		"", " ", "{", "}", "{}x", good + good, good + ",", good + "\x00", "null", "true", "1", `"x"`, "[]", "[" + good + "]",
		`{"url":"https://customer.example/",}`, `{"url":}`, `{url:1}`, `{'url':1}`, `{"url" "x"}`, `{"url":"a" "events":[]}`, `{"url":"\x"}`, `{"url":"\u12"}`,
		`{"url":"a","url":"a"}`, `{"url":"a","\u0075rl":"b"}`, `{"description":"\ud83d"}`, `{"description":"\udd17\ud83d"}`, `{"description":"\ud83dx"}`, `{"\udead":1}`,
		`{"description":"` + "\xff" + `"}`, `{"description":"` + "\xed\xa0\x80" + `"}`, "\xef\xbb\xbf" + good, "{\x00}", `{"description":"a` + "\n" + `b"}`, // UTF-16, BOM, raw control
		`{"url":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`,
		strings.Repeat(`{"url":`, 20_000), `{"max_in_flight":01}`, `{"max_in_flight":+1}`, `{"max_in_flight":NaN}`, `{"max_in_flight":1e}`, `{"a":1/**/}`,
	} {
		r := w.call("POST", webhooks, body).problem(400, "malformed")
		require.Less(t, len(r.raw), 1000)
		w.call("PATCH", path(e.ID), body).problem(400, "malformed")
	}
	// A pair of surrogates is a character.
	require.Equal(t, "\U0001F517\\ud83d", w.call("PATCH", path(e.ID), `{"description":"\ud83d\udd17\\ud83d"}`).is(200).at("endpoint", "description"))

	for _, contentType := range []string{
		"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp", "application/json; charset=utf-16",
		"application/json; charset", "application/merge-patch+json", "*/*", "x", "application/json, text/plain", "",
	} {
		w.call("POST", webhooks, good, "Content-Type", contentType).problem(415, "unsupported-media-type")
		w.call("POST", path(e.ID, "/test"), "{}", "Content-Type", contentType).problem(415, "unsupported-media-type")
	}
	for _, encoding := range []string{"gzip", "br", "x", "identity, gzip"} {
		w.call("POST", webhooks, good, "Content-Encoding", encoding).problem(415, "unsupported-media-type")
	}
	for _, target := range []string{webhooks, path(e.ID, "/test"), path(e.ID, "/recover"), path(e.ID, "/rotate-secret")} {
		w.call("POST", target, `{"description":"`+strings.Repeat("x", 256<<10)+`"}`).problem(413, "too-large")
	}
	// Just below the limit, a name that is made up does not come back whole.
	r := w.call("POST", webhooks, `{"`+strings.Repeat("n", 200_000)+`":1}`).is(422)
	require.Less(t, len(r.raw), 2000)
	unknown := make([]string, 10_000)
	for i := range unknown {
		unknown[i] = fmt.Sprintf(`"member-%d":1`, i)
	}
	r = w.call("POST", webhooks, "{"+strings.Join(unknown, ",")+"}").is(422)
	require.Less(t, len(r.raw), 10_000)

	list, err := w.Endpoints(t.Context(), workspace, 0, 0)
	require.NoError(t, err)
	require.Len(t, list, 1)
}

func TestBadQueries(t *testing.T) {
	w := newWorld(t, options{})
	e := w.endpoint(workspace)
	log := path(e.ID, "/deliveries")
	for field, values := range map[string][]string{
		"limit":   {"", "0", "101", "-1", "1.5", "1e1", "+5", "05", "0x5", "%205", "5+", "ten", "٥", "99999999999999999999", "5%00"},
		"offset":  {"", "-1", "1.5", "+5", "05", "x", "9007199254740992", "99999999999999999999"},
		"cursor":  {"", "x", "%00", "%ff", "MS4w", strings.Repeat("A", 5000), "%3Cscript%3E"},
		"status":  {"", "PENDING", "lost", "pending,failed", "%00", "pending%00", "%ff"},
		"type":    {"", "LINK.CREATED", "link.*", "%00", "link.created%00", "%ff", "a%27%20OR%201=1", strings.Repeat("a", 129)},
		"since":   {"", "0", "1764493200", "yesterday", "2026-11-30", "2026-11-30T09:00:00", "2026-11-30T09:00:00+01:00", "1969-12-31T23:59:59Z", "10000-01-01T00:00:00Z", "2026-02-30T00:00:00Z", "%00"},
		"until":   {"", "0", "2026-13-01T00:00:00Z", "0000-01-01T00:00:00Z"},
		"page":    {"1"}, // there is none
		"Limit":   {"1"},
		"limit[]": {"1"},
	} {
		for _, value := range values {
			w.call("GET", log+"?"+field+"="+value, nil).problem(400, "malformed", field)
		}
	}
	w.call("GET", log+"?limit=1&limit=2", nil).problem(400, "malformed", "limit")
	w.call("GET", log+"?limit=x&offset=y&since=z", nil).problem(400, "malformed", "since", "limit", "offset")
	w.call("GET", log+"?cursor=MS4x&offset=1", nil).problem(400, "malformed", "offset")
	for _, raw := range []string{"limit=%", "limit=%zz", "a;b", "%"} {
		w.call("GET", log+"?"+raw, nil).problem(400, "malformed")
	}
	for _, cursor := range []string{"", "0", "-1", "01", "x", "9007199254740992", "MS4x"} {
		w.call("GET", webhooks+"?cursor="+cursor, nil).problem(400, "malformed", "cursor")
	}
	w.call("GET", webhooks+"?offset=1", nil).problem(400, "malformed", "offset")
	w.call("POST", path(e.ID, "/test")+"?dry=1", nil).problem(400, "malformed", "dry")
	w.call("DELETE", path(e.ID)+"?force", nil).problem(400, "malformed", "force")
	w.call("GET", path(e.ID)+"?"+strings.Repeat("x", 5000)+"=1", nil).is(400)
	// Empty, it is none.
	w.call("GET", log+"?", nil).is(200)
	// Two times zones, written so that a + survives.
	w.call("GET", log+"?since=2026-11-30T09:00:00%2B01:00&until=2026-11-30T09:00:00-01:00", nil).is(200)
}

var badIDs = []string{
	"0", "-1", "+1", "01", "1.0", "1e3", "0x1", "1_000", "9007199254740992", "9223372036854775807", "9223372036854775808", "99999999999999999999999999",
	"x", "%00", "1%00", "%20", "1%20", "%2e", "..%2f", "1%2F2", "%F0%9F%94%97", "%ff", "%D9%A1", "null", "undefined", "*", "1;a=b", "1,2", "%3Cscript%3E", "test",
	strings.Repeat("9", 5000),
}

func TestBadIDs(t *testing.T) {
	w := newWorld(t, options{})
	e := w.endpoint(workspace)
	for _, id := range badIDs {
		w.call("GET", "/v1/workspaces/"+id+"/webhooks", nil).problem(400, "malformed", "workspace_id")
		w.call("POST", "/v1/workspaces/"+id+"/webhooks", object{}).problem(400, "malformed", "workspace_id")
		w.call("GET", webhooks+"/"+id, nil).problem(400, "malformed", "endpoint_id")
		w.call("DELETE", webhooks+"/"+id, nil).problem(400, "malformed", "endpoint_id")
		w.call("GET", path(e.ID, "/deliveries/", id), nil).problem(400, "malformed", "delivery_id")
		w.call("POST", path(e.ID, "/deliveries/", id, "/retry"), nil).problem(400, "malformed", "delivery_id")
	}
	w.call("GET", webhooks+"/9007199254740991", nil).problem(404, "not-found")
	w.call("GET", path(e.ID, "/deliveries/9007199254740991"), nil).problem(404, "not-found")
	w.call("GET", "/v1/workspaces/9007199254740991/webhooks", nil).is(200)
}

func TestPathTricks(t *testing.T) {
	w := newWorld(t, options{})
	e := w.endpoint(workspace)
	for _, target := range []string{
		"/", "/v1", "/v1/", "/v2/workspaces/42/webhooks", "/v1/workspaces", "/v1/workspaces/42", "/v1/workspaces/42/webhooks/", "/V1/workspaces/42/webhooks",
		"/v1//workspaces/42/webhooks", "/v1/./workspaces/42/webhooks", "/v1/workspaces/43/../42/webhooks", "/../v1/workspaces/42/webhooks",
		"/v1/workspaces/42/webhooks/..", "/v1/workspaces//webhooks", "/v1/workspaces/42/webhooks//deliveries",
		path(e.ID, "/"), path(e.ID, "/deliveries/"), path(e.ID, "/nothing"), path(e.ID, "/events/evt_1"), path(e.ID, "/events/"), path(e.ID, "/events//replay"),
		path(e.ID, "%2fdeliveries/1/retry/x"), "/v1/openapi.yaml/", "/v1/openapi.json", "/%76%31/workspaces/42/webhooks/", "/v1/workspaces/42/webhooks/event-types/",
		"/v1/workspaces/42/webhooks/a/b/c/d/e/f",
	} {
		for _, method := range []string{"GET", "POST", "DELETE", "OPTIONS"} {
			w.call(method, target, nil).problem(404, "not-found")
		}
	}
	// Escapes of what needs none are the same path.
	w.call("GET", "/v1/workspaces/%34%32/webhooks", nil).is(200)
	w.call("GET", "/v1/workspaces/42/webhooks?limit=%31", nil).is(200)
}

func TestMethods(t *testing.T) {
	w := newWorld(t, options{})
	e := w.endpoint(workspace)
	eventID, id := w.publish(workspace, `{}`)
	takes := map[string][]string{"/v1/openapi.yaml": {"GET", "HEAD"}}
	for _, o := range operations(workspace, e.ID, id, eventID) {
		takes[o.path] = append(takes[o.path], o.method)
		if o.method == "GET" {
			takes[o.path] = append(takes[o.path], "HEAD")
		}
	}
	for target, methods := range takes {
		slices.Sort(methods)
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY", "get", "PROPFIND"} {
			if slices.Contains(methods, method) {
				continue
			}
			if method == "HEAD" {
				r := w.call(method, target, nil).is(405)
				require.Empty(t, r.raw)
				continue
			}
			r := w.call(method, target, nil).problem(405, "method-not-allowed")
			require.Equal(t, strings.Join(methods, ", "), r.header.Get("Allow"), target)
		}
		if !slices.Contains(methods, "HEAD") {
			continue
		}
		get, head := w.call("GET", target, nil).is(200), w.call("HEAD", target, nil).is(200)
		require.Empty(t, head.raw)
		for _, name := range []string{"Content-Type", "Content-Length", "Cache-Control"} {
			require.Equal(t, get.header.Get(name), head.header.Get(name), target)
		}
	}
	w.call("HEAD", path(e.ID+1000), nil).is(404)
	// What is asked for has no method but the request line's.
	r := w.call("POST", path(e.ID), object{}, "X-HTTP-Method-Override", http.MethodDelete).is(405)
	require.Equal(t, "DELETE, GET, HEAD, PATCH, PUT", r.header.Get("Allow"))
	_, err := w.Endpoint(t.Context(), workspace, e.ID)
	require.NoError(t, err)
}

// Telegram's and Sentry's settings, one by one.
func TestBadChannelSettings(t *testing.T) {
	w := newWorld(t, options{})
	token := "123456789:AAaaBBbbCCccDDddEEeeFFffGGgg12345-_"
	for _, c := range []struct {
		body  object
		field string
	}{
		{object{"kind": "telegram"}, "config.chat_id"},
		{object{"kind": "telegram", "config": object{"chat_id": "<b>", "bot_token": token}}, "config.chat_id"},
		{object{"kind": "telegram", "config": object{"chat_id": "-1"}}, "config.bot_token"},
		{object{"kind": "telegram", "config": object{"chat_id": "-1", "bot_token": token + "\x00"}}, "config.bot_token"},
		{object{"kind": "telegram", "config": object{"chat_id": -1, "bot_token": token}}, "config.chat_id"},
		{object{"kind": "telegram", "config": object{"chat_id": "-1", "bot_token": token}, "url": "https://customer.example/"}, "url"},
		{object{"kind": "telegram", "config": object{"chat_id": "-1", "bot_token": token}, "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, "secret"},
		{object{"kind": "telegram", "config": object{"chat_id": "-1", "bot_token": token, "x": "y"}}, "config"},
		{object{"kind": "sentry", "config": object{"dsn": "https://customer.example/"}}, "config.dsn"},
		{object{"kind": "sentry", "config": object{"dsn": "https://key@127.0.0.1/1"}}, "config.dsn"},
		{object{"kind": "discord", "url": "https://customer.example/"}, "url"},
		{object{"kind": "discord", "url": "https://discord.com/api/webhooks/1/***"}, "url"},
		{object{"kind": "siem", "url": "https://customer.example/", "events": []string{"link.*"}}, "events"},
	} {
		if c.body["events"] == nil && c.body["kind"] != "siem" {
			c.body["events"] = []string{"link.*"}
		}
		r := w.call("POST", webhooks, c.body).problem(422, "invalid", c.field)
		require.NotContains(t, r.raw, token)
	}
	// Names of types of one's own are not for customers to add.
	r := w.call("POST", webhooks, object{"url": "https://customer.example/", "events": []string{"order.paid"}}).problem(422, "invalid", "events[0]")
	require.NotContains(t, r.raw, "Catalog")
}
