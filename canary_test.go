package webhook_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/internal/canary"
	"github.com/elido-app/webhook/store"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
)

// What must not get out, and the like of which is nowhere else.
const (
	signingCanary     = "whsec_c2lnbmluZy1jNG5hcnktMDEyMzQ1Njc4OWFiY2RlZg=="
	rotatedCanary     = "whsec_cm90YXRlZC1jNG5hcnktZmVkY2JhOTg3NjU0MzIxMA=="
	previousCanary    = "previous-c4nary/of+Another=System"
	credentialsCanary = "7712345678:AAc4nary-B0t_Token"
	keyCanary         = "k3y-c4nary-0f-exactly-32-bytes!!"
	pathCanary        = "p4th-C4nary-T0ken"
	queryCanary       = "qu3ry-C4nary+T0ken"
	headerCanary      = "h34der-C4nary/T0ken+="
	hashCanary        = "h4sh-$2y$10$C4nary.0f/a.password"
	answerCanary      = "4nswer-C4nary-0f-a-receiver"
)

// A place is a column of a table, or something else that is searched.
type place string

// A quarry is a canary and the only places where it may be.
type quarry struct {
	*canary.Canary
	may []place
}

// quarries are what to look for; where the store has no key, secrets are in the
// row that holds them.
func quarries(clear bool) []quarry {
	var secret, credentials []place
	if clear {
		secret = []place{"webhook_endpoints.current_secret", "webhook_endpoints.previous_secret"}
		credentials = []place{"webhook_endpoints.credentials"}
	}
	address := []place{"webhook_endpoints.url", "record: endpoint", "printed"} // params say what they were given
	return []quarry{
		{canary.New("the signing secret", signingCanary), secret},
		{canary.New("the rotated secret", rotatedCanary), secret},
		{canary.New("the previous secret", previousCanary), secret},
		{canary.New("the credentials", credentialsCanary), credentials},
		{canary.New("the encryption key", keyCanary), nil},
		{canary.New("the path", pathCanary), address},
		{canary.New("the query", queryCanary), address},
		{canary.New("the header", headerCanary), []place{"webhook_endpoints.headers", "record: endpoint", "printed"}},
		{canary.New("the password hash", hashCanary), nil},
		{canary.New("the answer", answerCanary), []place{"webhook_attempts.response", "record: attempt"}},
	}
}

// A sweep gathers all that comes out of a Dispatcher and its store.
type sweep struct {
	*testing.T
	keys     webhook.Keyring
	path     string
	store    store.Store
	log      logged
	logger   *slog.Logger
	searched map[place][]byte

	signatures []string // all that were sent
}

func newSweep(t *testing.T, keys webhook.Keyring) *sweep {
	s := &sweep{T: t, keys: keys, path: filepath.Join(t.TempDir(), "webhooks.db"), searched: map[place][]byte{}}
	options := &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}
	out := &s.log
	before := log.Writer()
	log.SetOutput(out) // net/http has things to say as well
	t.Cleanup(func() { log.SetOutput(before) })
	s.logger = slog.New(slog.NewMultiHandler(slog.NewTextHandler(out, options), slog.NewJSONHandler(out, options)))
	var err error
	s.store, err = sqlitestore.Open(t.Context(), s.path)
	require.NoError(t, err)
	return s
}

// dispatcher makes a Dispatcher on the store.
func (s *sweep) dispatcher(change func(c *webhook.Config)) *world {
	c := webhook.Config{
		Logger: s.logger, Keys: s.keys, Timeout: 300 * time.Millisecond, Poll: 50 * time.Millisecond, Grace: time.Second,
		Retry:  webhook.RetryPolicy{Delays: []time.Duration{10 * time.Millisecond}},
		Egress: webhook.Egress{AllowLoopback: true},
	}
	if change != nil {
		change(&c)
	}
	w := dispatcherOn(s, s.store, c)
	w.T = s.T
	return w
}

// note keeps something to search.
func (s *sweep) note(p place, text ...any) {
	s.searched[p] = fmt.Append(append(s.searched[p], '\n'), text...)
}

// fails notes an error that must be one.
func (s *sweep) fails(what string, err error) {
	s.Helper()
	require.Error(s, err, what)
	s.note("error", what, err, fmt.Sprintf(" %+v %q", err, err.Error()))
}

// params is an endpoint with all that is confidential in it.
func (s *sweep) params(workspaceID int64, base string) webhook.EndpointParams {
	return webhook.EndpointParams{
		WorkspaceID: workspaceID, URL: base + "/in/" + pathCanary + "/?plain=1&key=" + queryCanary, Events: []string{"link.*", "audit.event", "invitation.*"},
		Headers: map[string]string{"Authorization": "Bearer " + headerCanary, "X-Api-Key": headerCanary}, Secret: webhook.NewSecret(signingCanary),
	}
}

// data has secret fields in every way they are taken out.
func secretData() json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"id":91834,"password_hash":%[1]q,"Pass\u0077ord_Hash":[%[1]q],"previous":{"password_hash":{"x":%[1]q}},`+
		`"list":[{"PASSWORD_HASH":%[1]q}]}`, hashCanary))
}

func (s *sweep) endpoint(w *world, workspaceID int64, base string) webhook.Endpoint {
	e, secret, err := w.CreateEndpoint(s.Context(), s.params(workspaceID, base))
	require.NoError(s, err)
	s.note("record: endpoint", asText(e))
	s.note("printed", asText(secret))
	return e
}

func (s *sweep) publish(w *world, workspaceID int64) []int64 {
	r, err := w.Publish(s.Context(), webhook.Event{Type: "link.created", WorkspaceID: workspaceID, Data: secretData()})
	require.NoError(s, err)
	return r.DeliveryIDs
}

// asText is what one sees of a value.
func asText(v any) string {
	b, err := json.Marshal(v)
	return fmt.Sprintf("%s %v %+v %#v %s", b, err, v, v, v)
}

// settled waits until nothing of a workspace is pending.
func (s *sweep) settled(w *world, workspaceID int64) {
	s.Helper()
	require.Eventually(s, func() bool {
		page, err := w.Deliveries(s.Context(), webhook.DeliveryQuery{WorkspaceID: workspaceID, Status: webhook.StatusPending})
		require.NoError(s, err)
		return len(page.Deliveries) == 0
	}, time.Minute, 10*time.Millisecond)
}

// records notes what the Dispatcher shows of a workspace.
func (s *sweep) records(w *world, workspaceID int64) {
	page, err := w.Deliveries(s.Context(), webhook.DeliveryQuery{WorkspaceID: workspaceID})
	require.NoError(s, err)
	s.note("record: delivery", asText(page))
	for _, d := range page.Deliveries {
		list, err := w.Attempts(s.Context(), workspaceID, d.ID)
		require.NoError(s, err)
		s.note("record: attempt", asText(list))
	}
	endpoints, err := w.Endpoints(s.Context(), workspaceID, 0, 0)
	require.NoError(s, err)
	s.note("record: endpoint", asText(endpoints))
}

// file notes the database and its log as they lie on the disk.
func (s *sweep) file() {
	for _, suffix := range []string{"", "-wal", "-shm"} {
		b, err := os.ReadFile(s.path + suffix)
		if err == nil {
			s.searched["file"] = append(s.searched["file"], b...)
		}
	}
}

// tables notes every column of every table.
func (s *sweep) tables() {
	db, err := sql.Open("sqlite3", "file:"+s.path+"?mode=ro")
	require.NoError(s, err)
	defer db.Close()
	names, err := db.QueryContext(s.Context(), `SELECT name FROM sqlite_schema WHERE type = 'table'`)
	require.NoError(s, err)
	defer names.Close()
	var tables []string
	for names.Next() {
		var name string
		require.NoError(s, names.Scan(&name))
		tables = append(tables, name)
	}
	require.NoError(s, names.Err())
	require.Contains(s, tables, "webhook_attempts")
	for _, table := range tables {
		s.table(db, table)
	}
}

func (s *sweep) table(db *sql.DB, table string) {
	rows, err := db.QueryContext(s.Context(), `SELECT * FROM "`+table+`"`)
	require.NoError(s, err)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(s, err)
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new([]byte)
		}
		require.NoError(s, rows.Scan(values...))
		for i, column := range columns {
			p := place(table + "." + column)
			s.searched[p] = append(append(s.searched[p], *values[i].(*[]byte)...), '\n')
		}
	}
	require.NoError(s, rows.Err())
}

// sent notes what a receiver got, and the signatures in it.
func (s *sweep) sent(p place, r *socket) {
	wire := r.bytes()
	s.note(p, string(wire))
	for _, match := range signatureHeader.FindAllSubmatch(wire, -1) {
		s.signatures = append(s.signatures, string(match[1]))
	}
}

// signatureHeader finds the MAC in any scheme's header.
var signatureHeader = regexp.MustCompile(`(?m)^[A-Za-z-]*[Ss]ignature[A-Za-z-]*: [^\r\n]*?v1[=,]([0-9A-Za-z+/]{40,})`)

// search looks for every canary in everything.
func (s *sweep) search(clear bool) {
	s.Helper()
	s.note("log", s.log.String())
	for _, q := range quarries(clear) {
		for p, text := range s.searched {
			if p == "file" && q.may != nil || strings.HasPrefix(string(p), "wire") && s.own(q, p) {
				continue
			}
			if form := q.In(text); form != "" && !slices.Contains(q.may, p) {
				at := bytes.Index(text, []byte("c4nary"))
				s.Errorf("%s is in %s: %s (%.200q)", q, p, form, text[max(0, at-100):])
			}
		}
	}
	require.Greater(s, len(s.signatures), 30)
	for p, text := range s.searched {
		for _, signature := range s.signatures {
			if !strings.HasPrefix(string(p), "wire") && bytes.Contains(text, []byte(signature)) {
				s.Errorf("a signature is in %s", p)
			}
		}
	}
	// The net has no holes: what may be somewhere is found there.
	require.NotEmpty(s, canary.New("", pathCanary).In(s.searched["webhook_endpoints.url"]))
	require.NotEmpty(s, canary.New("", headerCanary).In(s.searched["webhook_endpoints.headers"]))
	require.NotEmpty(s, canary.New("", pathCanary).In(s.searched["file"]))
	require.NotEmpty(s, canary.New("", answerCanary).In(s.searched["webhook_attempts.response"]))
	require.Equal(s, clear, canary.New("", signingCanary).In(s.searched["webhook_endpoints.current_secret"]) != "")
	require.Equal(s, clear, canary.New("", credentialsCanary).In(s.searched["webhook_endpoints.credentials"]) != "")
}

// own reports whether a receiver is to get what is looked for: its own URL and
// its own headers. The one an endpoint was moved to gets no header.
func (s *sweep) own(q quarry, p place) bool {
	switch q.String() {
	case "the path", "the query", "the answer":
		return true
	case "the header":
		return p != "wire, moved"
	}
	return false
}

func TestCanaries(t *testing.T) {
	for name, keys := range map[string]webhook.Keyring{
		"encrypted":    {Current: "k1", Keys: map[string]webhook.Secret{"k1": webhook.NewSecret(keyCanary)}},
		"in the clear": {},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSweep(t, keys)
			clear := len(keys.Keys) == 0
			s.note("printed", asText(keys))
			s.everyAnswer()
			s.everyNetworkFault()
			s.hostsOwnFaults()
			s.refusals()
			w := s.lifecycle()
			s.file()
			s.tables()
			s.note("printed", fmt.Sprintf("%v %+v %s", w.Dispatcher, w.Dispatcher, asText(webhook.Config{Keys: keys})))
			require.NoError(t, s.store.Close())
			_, err := w.Publish(t.Context(), webhook.Event{Type: "link.created", WorkspaceID: 1, Data: secretData()})
			s.fails("closed", err)
			s.fails("closed", w.Dispatcher.Run(t.Context()))
			s.file()
			s.search(clear)
		})
	}
}

// everyAnswer lets receivers do all they can, and repeat what they were sent.
func (s *sweep) everyAnswer() {
	body := answerCanary + "\r\n"
	echo := func(format string) replier {
		return func(c net.Conn, _ int64) bool {
			_, err := fmt.Fprintf(c, "HTTP/1.1 500 %s\r\nX-Answer: %s\r\nContent-Length: %d\r\n\r\n%s", answerCanary, answerCanary, len(format), format)
			return err == nil
		}
	}
	replies := []replier{
		answering(okAnswer), closing("HTTP/1.1 500 " + body + "\r\n" + body), closing("HTTP/1.1 404 " + body + "X: " + body + "\r\n"),
		closing("HTTP/1.1 200 " + body + "Content-Length: 1000\r\n\r\n" + body), closing("HTTP/1.1 302 M\r\nLocation: https://elsewhere.example/" + answerCanary + "\r\n\r\n"),
		closing("HTTP/1.1 307 M\r\nLocation: http://[::1\r\n\r\n"), closing("HTTP/1.1 101 S\r\n\r\n" + body), closing("HTTP/1.1 999 " + body + "\r\n" + body),
		closing(body), closing("HTTP/1.1 " + body), closing("HTTP/1.1 200 OK\r\n" + body), closing(""), resetting(""), resetting("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + body),
		closing("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n" + body), flood("HTTP/1.1 200 OK\r\n", "X: "+body), flood("HTTP/1.1 500 OK\r\n\r\n", body),
		hold, trickle("HTTP/1.1 500 I\r\n\r\n", body, 50*time.Millisecond), trickle(okAnswer, body, 20*time.Millisecond), answering("HTTP/1.1 429 S\r\nRetry-After: " + answerCanary + "\r\nContent-Length: 0\r\n\r\n"),
		echo("missing key, I have " + signingCanary), echo(`{"expected":"` + rotatedCanary + `"}`),
		echo("Cannot POST /in/" + pathCanary + "/?plain=1&key=" + queryCanary + " with Bearer " + headerCanary),
	}
	w := s.dispatcher(nil)
	w.run()
	defer w.stop()
	var sockets []*socket
	for i, reply := range replies {
		r := listen(s, reply)
		sockets = append(sockets, r)
		e := s.endpoint(w, int64(i+1), "http://"+r.host)
		_, _, err := w.RotateSecret(s.Context(), int64(i+1), e.ID, webhook.RotateOptions{Secret: webhook.NewSecret(rotatedCanary)})
		require.NoError(s, err)
		s.publish(w, int64(i+1))
	}
	raw := &socket{} // says it all again, as it came and as JSON
	raw.serve(s, nil, func(c net.Conn) {
		request := readRequest(c)
		_, _ = raw.Write([]byte(request))
		quoted, _ := json.Marshal(request)
		fmt.Fprintf(c, "HTTP/1.1 500 I\r\n\r\n%s\r\n%s\r\n%s\r\n%s", request, quoted, url.QueryEscape(request), answerCanary)
	})
	sockets = append(sockets, raw)
	s.endpoint(w, 500, "http://"+raw.host)
	s.publish(w, 500)
	for i := range replies {
		s.settled(w, int64(i+1))
		s.records(w, int64(i+1))
	}
	s.settled(w, 500)
	s.records(w, 500)
	for _, r := range sockets {
		require.NotEmpty(s, r.bytes())
		s.sent("wire", r)
	}
}

// everyNetworkFault lets no connection come about.
func (s *sweep) everyNetworkFault() {
	ca := newAuthority(s)
	hour := time.Now().Add(time.Hour)
	r := map[string]*socket{
		"expired": listenTLS(s, tlsConfig(ca.issue(s, "hooks.example", time.Now().Add(-time.Minute))), answering(okAnswer)),
		"other":   listenTLS(s, tlsConfig(ca.issue(s, "other.example", hour)), answering(okAnswer)),
		"unknown": listenTLS(s, tlsConfig(selfSigned(s)), answering(okAnswer)),
		"old":     listenTLS(s, &tls.Config{Certificates: []tls.Certificate{ca.issue(s, "hooks.example", hour)}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, answering(okAnswer)),
		"long":    listenTLS(s, tlsConfig(ca.chain(s, "hooks.example", 100<<10)), answering(okAnswer)),
		"plain":   listen(s, answering(okAnswer)),
		"silent":  accept(s, func(c net.Conn) { hold(c, 0) }),
		"good":    listenTLS(s, tlsConfig(ca.issue(s, "hooks.example", hour)), answering(okAnswer)),
	}
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s, err)
	gone.Close()
	w := s.dispatcher(func(c *webhook.Config) {
		c.Egress.RootCAs = ca.pool
		c.Egress.Resolver = resolverFunc(func(ctx context.Context, host string) ([]netip.Addr, error) {
			switch host {
			case "inside.example":
				return addresses("127.0.0.1", "10.0.0.1"), nil
			case "nowhere.example":
				return nil, &net.DNSError{Err: "no such host " + credentialsCanary, Name: host, IsNotFound: true}
			case "broken.example":
				return nil, errors.New("cannot look up " + pathCanary)
			case "panic.example":
				panic(pathCanary)
			case "slow.example":
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return addresses("127.0.0.1"), nil
		})
		c.Egress.Proxy = func(r *http.Request) (*url.URL, error) {
			switch r.URL.Hostname() {
			case "proxied.example":
				return &url.URL{Scheme: "http", Host: gone.Addr().String(), User: url.UserPassword("u", credentialsCanary)}, nil
			case "faultyproxy.example":
				return nil, fmt.Errorf("no proxy for %s", r.URL)
			case "panicproxy.example":
				panic(r.URL)
			}
			return nil, nil
		}
	})
	w.run()
	defer w.stop()
	workspaceID := int64(1000)
	var all []int64
	post := func(base string) {
		workspaceID++
		all = append(all, workspaceID)
		s.endpoint(w, workspaceID, base)
		s.publish(w, workspaceID)
	}
	for _, r := range r {
		post("https://hooks.example:" + r.port())
	}
	post("http://" + gone.Addr().String())
	for _, host := range []string{"inside", "nowhere", "broken", "panic", "slow", "proxied", "faultyproxy"} {
		post("https://" + host + ".example")
	}
	for _, id := range all {
		s.settled(w, id)
		s.records(w, id)
	}
	post("https://panicproxy.example") // is not the receiver's doing: it waits
	require.Eventually(s, func() bool {
		page, err := w.Deliveries(s.Context(), webhook.DeliveryQuery{WorkspaceID: workspaceID})
		return err == nil && len(page.Deliveries[0].LastError) > 0
	}, time.Minute, 10*time.Millisecond)
	s.records(w, workspaceID)
	for name, r := range r {
		s.sent("wire", r)
		require.Equal(s, name == "good", len(r.bytes()) > 0 && bytes.Contains(r.bytes(), []byte("91834")), name)
	}
}

// hostsOwnFaults lets what the host brings along fail, with secrets in hand.
func (s *sweep) hostsOwnFaults() {
	const workspaceID = 2000
	r := listen(s, answering(okAnswer))
	w := s.dispatcher(nil)
	s.endpoint(w, workspaceID, "http://"+r.host)
	for name, prepare := range map[string]hostScheme{
		"refuses":    func(secret webhook.Secret) (webhook.SignFunc, error) { return nil, errors.New(secret.Reveal()) },
		"panics":     func(secret webhook.Secret) (webhook.SignFunc, error) { panic(secret.Reveal()) },
		"is nothing": func(webhook.Secret) (webhook.SignFunc, error) { return nil, nil },
		"panics late": func(secret webhook.Secret) (webhook.SignFunc, error) {
			return func(h http.Header, m webhook.Message) { panic(fmt.Errorf("%s %s", secret.Reveal(), m.Body)) }, nil
		},
	} {
		bad := s.dispatcher(func(c *webhook.Config) { c.Signer.Schemes = []webhook.Scheme{prepare} })
		ids := s.publish(w, workspaceID)
		_, err := bad.RunOnce(s.Context())
		require.NoError(s, err)
		d, err := w.Delivery(s.Context(), workspaceID, ids[0])
		require.NoError(s, err)
		require.NotEmpty(s, d.LastError, name)
		s.records(bad, workspaceID)
		if name != "panics late" {
			_, _, err := bad.CreateEndpoint(s.Context(), s.params(workspaceID, "https://example.com"))
			s.fails("scheme", err)
		}
	}
	// A key that is not the one.
	other := s.dispatcher(func(c *webhook.Config) {
		c.Keys = webhook.Keyring{Current: "k2", Keys: map[string]webhook.Secret{"k2": webhook.NewSecret(strings.ToUpper(keyCanary))}}
	})
	s.publish(w, workspaceID)
	_, err := other.RunOnce(s.Context())
	require.NoError(s, err)
	s.records(other, workspaceID)

	catalog := webhook.DefaultCatalog()
	catalog.ScrubWith(func(_ string, data json.RawMessage) (json.RawMessage, error) {
		if bytes.Contains(data, []byte("panic")) {
			panic(string(data))
		}
		return nil, fmt.Errorf("no: %s", data)
	})
	bad := s.dispatcher(func(c *webhook.Config) {
		c.Catalog = catalog
		c.AllowEndpoint = func(_ context.Context, p webhook.EndpointParams) error {
			panic(p.Secret.Reveal() + p.URL + fmt.Sprint(p))
		}
		c.AllowPublish = func(_ context.Context, events []webhook.Event) error { panic(events[0].Data) }
	})
	_, _, err = bad.CreateEndpoint(s.Context(), s.params(workspaceID, "https://example.com"))
	s.fails("AllowEndpoint", err)
	for _, data := range []string{`{"panic":"` + pathCanary + `"}`, `{"a":"` + pathCanary + `"}`} {
		_, err = bad.Publish(s.Context(), webhook.Event{Type: "link.created", WorkspaceID: workspaceID, Data: json.RawMessage(data)})
		s.fails("ScrubFunc", err)
	}
	bad = s.dispatcher(func(c *webhook.Config) {
		c.AllowPublish = func(_ context.Context, events []webhook.Event) error { panic(events[0].Data) }
	})
	_, err = bad.Publish(s.Context(), webhook.Event{Type: "link.created", WorkspaceID: workspaceID, Data: secretData()})
	s.fails("AllowPublish", err)
	bad = s.dispatcher(func(c *webhook.Config) {
		c.Envelope = func(f webhook.EnvelopeFields) ([]byte, error) { panic(string(f.Data) + pathCanary) }
	})
	_, err = bad.Publish(s.Context(), webhook.Event{Type: "link.created", WorkspaceID: workspaceID, Data: secretData()})
	s.fails("Envelope", err)
	s.sent("wire", r)
}

// refusals are calls that get an error, with a secret in what they were given.
func (s *sweep) refusals() {
	w := s.dispatcher(nil)
	for raw := range maps.Keys(refusedURLs) {
		p := s.params(3000, "https://example.com")
		p.URL = strings.ReplaceAll(raw, "c4nary", pathCanary)
		_, _, err := w.CreateEndpoint(s.Context(), p)
		if err == nil {
			continue // loopback is allowed here
		}
		s.fails("URL", err)
	}
	for field, change := range map[string]func(p *webhook.EndpointParams){
		"header":        func(p *webhook.EndpointParams) { p.Headers["X-Elido-Signature"] = headerCanary },
		"header value":  func(p *webhook.EndpointParams) { p.Headers["X-A"] = headerCanary + "\r\n" },
		"short secret":  func(p *webhook.EndpointParams) { p.Secret = webhook.NewSecret(signingCanary[:20]) },
		"long secret":   func(p *webhook.EndpointParams) { p.Secret = webhook.NewSecret(strings.Repeat(signingCanary, 6)) },
		"spaced secret": func(p *webhook.EndpointParams) { p.Secret = webhook.NewSecret(signingCanary + " ") },
		"event":         func(p *webhook.EndpointParams) { p.Events = []string{"nothing"} },
		"workspace":     func(p *webhook.EndpointParams) { p.WorkspaceID = -1 },
	} {
		p := s.params(3000, "https://example.com")
		change(&p)
		_, _, err := w.CreateEndpoint(s.Context(), p)
		s.fails(field, err)
	}
	for name, data := range map[string]any{
		"not JSON":   json.RawMessage(`{"password_hash":"` + hashCanary + `"`),
		"not UTF-8":  json.RawMessage("{\"a\":\"" + hashCanary + "\xff\"}"),
		"an array":   []string{hashCanary},
		"bytes":      []byte(hashCanary),
		"unfit":      map[string]any{"password_hash": hashCanary, "f": func() {}},
		"marshaler":  failingMarshaler{},
		"too large":  map[string]string{"a": strings.Repeat(pathCanary, 20000)},
		"nested":     json.RawMessage(strings.Repeat(`{"password_hash":`, 5000) + `"` + hashCanary + `"`),
		"a string":   hashCanary,
		"a duration": json.RawMessage(hashCanary),
	} {
		_, err := w.Publish(s.Context(), webhook.Event{Type: "link.created", WorkspaceID: 3000, Data: data})
		s.fails(name, err)
	}
	_, err := webhook.New(s.store, webhook.Config{Keys: webhook.Keyring{Current: "k", Keys: map[string]webhook.Secret{"k": webhook.NewSecret(keyCanary + "x")}}})
	s.fails("key", err)
}

type failingMarshaler struct{}

func (failingMarshaler) MarshalJSON() ([]byte, error) { return nil, errors.New(hashCanary) }

// lifecycle is what an endpoint goes through.
func (s *sweep) lifecycle() *world {
	const workspaceID = 4000
	first, second := listen(s, answering(okAnswer)), listen(s, answering(okAnswer))
	w := s.dispatcher(nil)
	w.run()
	e := s.endpoint(w, workspaceID, "http://"+first.host)
	s.publish(w, workspaceID)
	s.settled(w, workspaceID)
	_, secret, err := w.RotateSecret(s.Context(), workspaceID, e.ID, webhook.RotateOptions{Secret: webhook.NewSecret(rotatedCanary)})
	require.NoError(s, err)
	s.note("printed", asText(secret))
	seen := 0
	_, _, err = w.RotateSecret(s.Context(), workspaceID, e.ID, webhook.RotateOptions{Seen: &seen, Secret: webhook.NewSecret(rotatedCanary)})
	s.fails("rotate", err)
	_, err = w.SendTest(s.Context(), workspaceID, e.ID)
	require.NoError(s, err)
	_, err = w.Publish(s.Context(), webhook.Event{Type: "audit.event", WorkspaceID: workspaceID, Data: map[string]any{"token": hashCanary, "a": []any{map[string]string{"Token": hashCanary}}}})
	require.NoError(s, err)
	s.settled(w, workspaceID)
	require.Contains(s, string(first.bytes()), "X-Elido-Signature-Previous")

	// To another host, whose owner gets what was published and nothing else.
	to := "http://" + second.host + "/"
	_, err = w.UpdateEndpoint(s.Context(), workspaceID, e.ID, webhook.EndpointUpdate{URL: &to})
	require.NoError(s, err)
	ids := s.publish(w, workspaceID)
	s.settled(w, workspaceID)
	_, err = w.Retry(s.Context(), workspaceID, ids[0])
	require.NoError(s, err)
	s.settled(w, workspaceID)
	require.EqualValues(s, 2, second.requests.Load())
	require.NotEmpty(s, canary.New("", headerCanary).In(first.bytes()))
	s.sent("wire, moved", second)
	s.sent("wire", first)
	_, err = w.PauseEndpoint(s.Context(), workspaceID, e.ID)
	require.NoError(s, err)
	_, err = w.SendTest(s.Context(), workspaceID, e.ID)
	s.fails("paused", err)

	// From another system, with two secrets; and of kinds with credentials, which
	// are none of our business yet.
	p := webhook.ImportParams{EndpointParams: s.params(workspaceID, "http://"+first.host), ID: 70001, CreatedAt: time.Now(), Rotations: 1,
		Previous: webhook.NewSecret(previousCanary), PreviousUntil: time.Now().Add(time.Hour)}
	imported, err := w.ImportEndpoint(s.Context(), p)
	require.NoError(s, err)
	s.note("record: endpoint", asText(imported))
	s.note("printed", asText(p))
	_, err = w.ImportEndpoint(s.Context(), p)
	s.fails("import", err)
	for _, kind := range []store.Kind{store.KindEvent, store.KindTelegram} {
		_, err = s.store.CreateEndpoint(s.Context(), store.CreateEndpointParams{
			Endpoint: store.Endpoint{WorkspaceID: workspaceID, Kind: kind, URL: "http://" + first.host, Events: []string{"link.*"}, Active: true, CreatedAt: time.Now(), UpdatedAt: time.Now()},
			Seal: func(id int64) (store.Secrets, error) {
				return store.Secrets{
					Current:     w.SealCredentials(webhook.NewSecret(signingCanary), workspaceID, id), // as something else: does not decrypt
					Credentials: w.SealCredentials(webhook.NewSecret(credentialsCanary), workspaceID, id),
				}, nil
			},
		})
		require.NoError(s, err)
	}
	s.publish(w, workspaceID)
	require.Eventually(s, func() bool {
		page, err := w.Deliveries(s.Context(), webhook.DeliveryQuery{WorkspaceID: workspaceID, EndpointID: imported.ID, Status: webhook.StatusDelivered})
		return err == nil && len(page.Deliveries) == 1
	}, time.Minute, 10*time.Millisecond)
	s.records(w, workspaceID)
	now := time.Now().Add(time.Hour)
	leases, err := s.store.Claim(s.Context(), store.ClaimParams{Now: now, LeaseParams: store.LeaseParams{Token: 1, Until: now, Room: store.Room{Limit: 100, PerEndpoint: 100}}})
	require.NoError(s, err)
	for _, l := range leases.Leases {
		s.note("printed", asText(*l.Target))
	}

	// Cut in mid-flight, and gone.
	hanging := listen(s, hold)
	gone := s.endpoint(w, workspaceID+1, "http://"+hanging.host)
	s.publish(w, workspaceID+1)
	require.Eventually(s, func() bool { return hanging.requests.Load() > 0 }, time.Minute, time.Millisecond)
	w.stop()
	require.NoError(s, w.DeleteEndpoint(s.Context(), workspaceID+1, gone.ID))
	_, err = w.Endpoint(s.Context(), workspaceID+1, gone.ID)
	s.fails("deleted", err)
	_, _, err = w.RotateSecret(s.Context(), workspaceID+1, gone.ID, webhook.RotateOptions{})
	s.fails("deleted", err)
	require.NoError(s, w.Maintain(s.Context()))
	ended, cancel := context.WithCancel(s.Context())
	cancel()
	_, err = w.Publish(ended, webhook.Event{Type: "link.created", WorkspaceID: workspaceID, Data: secretData()})
	s.fails("cancelled", err)
	_, _, err = w.CreateEndpoint(ended, s.params(workspaceID, "https://example.com"))
	s.fails("cancelled", err)
	return w
}

// A secret that is erased is not left in the file, where nobody would look for it
// but who has the disk: not in a row, and not in the unused space of a page.
func TestErasedSecretsLeaveTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "webhooks.db")
	st, err := sqlitestore.Open(t.Context(), path)
	require.NoError(t, err)
	w := dispatcherOn(t, st, webhook.Config{Logger: quiet()})
	brief := dispatcherOn(t, st, webhook.Config{Logger: quiet(), Signer: webhook.Signer{Overlap: time.Millisecond}})
	var erased, live []string
	secret := func() webhook.Secret { return webhook.NewSecret(rand.Text() + rand.Text()) }
	var all []webhook.Endpoint
	var secrets []string
	for range 120 {
		s := secret()
		secrets = append(secrets, s.Reveal())
		e, _ := w.endpoint(webhook.EndpointParams{Secret: s, Description: strings.Repeat("x", len(all)*997%1000)})
		all = append(all, e)
		// Rows that grow and shrink move within their page, and between pages.
		other, description := all[len(all)*7919%len(all)], strings.Repeat("y", len(all)*991%1000)
		_, err := w.UpdateEndpoint(t.Context(), workspace, other.ID, webhook.EndpointUpdate{Description: &description})
		require.NoError(t, err)
	}
	for i, e := range all {
		o := webhook.RotateOptions{Secret: secret(), NoOverlap: i%4 == 1}
		d := w
		switch i % 4 {
		case 0: // with its previous secret, which is live as well
			live = append(live, secrets[i], o.Secret.Reveal())
		case 1, 2: // replaced at once, or after an overlap
			live, erased = append(live, o.Secret.Reveal()), append(erased, secrets[i])
			d = brief
		case 3:
			erased = append(erased, secrets[i], o.Secret.Reveal())
		}
		_, _, err := d.RotateSecret(t.Context(), workspace, e.ID, o)
		require.NoError(t, err)
		if i%4 == 3 {
			require.NoError(t, w.DeleteEndpoint(t.Context(), workspace, e.ID))
		}
	}
	time.Sleep(10 * time.Millisecond) // the brief overlaps
	require.NoError(t, w.Maintain(t.Context()))
	require.NoError(t, st.Close())
	require.NoFileExists(t, path+"-wal")
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, s := range erased {
		require.Empty(t, canary.New("", s).In(b))
	}
	for _, s := range live {
		require.Equal(t, 1, bytes.Count(b, []byte(s)), "a live secret is in its row alone")
	}
}
