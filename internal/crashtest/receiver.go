package crashtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/elido-app/webhook"
)

// A request is one that the receiver has read to its end.
type request struct {
	Seq      int   // in order of arrival
	Process  int   // that it is from
	Delivery int64 // and its
	Attempt  int   // number
	Path     string
	Secret   int // number of the secret, in its endpoint's chain, that signed it; -1 if none did
	Previous int // of the one that signed it as the previous; -1 without one
	Status   int // what it is about to be answered with; 0: nothing
}

// A receiver answers all endpoints, and writes down every request before it does.
type receiver struct {
	*httptest.Server
	log    *journal
	answer func(request) int // the status; 0: no answer

	mu      sync.Mutex
	read    func(request) // told of a request that has been read and written down
	seq     int
	seen    map[string]int // the latest secret seen, by path
	unknown []string       // what was no request of a child's
}

func newReceiver(t *testing.T, answer func(request) int) *receiver {
	log, err := openJournal(logPath(t))
	if err != nil {
		t.Fatal(err)
	}
	r := &receiver{log: log, answer: answer, seen: map[string]int{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(func() {
		r.CloseClientConnections()
		r.Close()
		_ = log.file.Close()
	})
	return r
}

// silence is how long the receiver keeps a request that gets no answer. It is
// longer than the time limit of those who send many.
const silence = 2 * loadTimeout

// onRead sets what is told of requests.
func (r *receiver) onRead(f func(request)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = f
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, h *http.Request) {
	body, err := io.ReadAll(h.Body)
	if err != nil {
		return // its process died over it
	}
	q := request{Path: h.URL.Path}
	var errs [3]error
	q.Process, errs[0] = strconv.Atoi(h.Header.Get(headerProcess))
	q.Attempt, errs[1] = strconv.Atoi(h.Header.Get(headerAttempt))
	q.Delivery, errs[2] = strconv.ParseInt(h.Header.Get("X-Webhook-Delivery"), 10, 64)
	if errs != [3]error{} {
		r.mu.Lock()
		r.unknown = append(r.unknown, fmt.Sprint(h.Method, h.URL, h.Header))
		r.mu.Unlock()
		return
	}
	q.Status = 200
	if r.answer != nil {
		q.Status = r.answer(q)
	}
	r.mu.Lock()
	r.seq++
	q.Seq = r.seq
	q.Secret = r.signedBy(q.Path, h.Header.Get("X-Elido-Signature"), h.Header, body)
	q.Previous = r.signedBy(q.Path, h.Header.Get("X-Elido-Signature-Previous"), h.Header, body)
	r.log.write(q)
	read := r.read
	r.mu.Unlock()
	if read != nil {
		read(q)
	}
	if q.Status != 0 {
		w.WriteHeader(q.Status)
		return
	}
	if q.Seq%4 == 0 {
		select {
		case <-h.Context().Done():
		case <-time.After(silence):
		}
	}
	panic(http.ErrAbortHandler) // resets the connection
}

// chainAhead is how far the secret of a request may be from the latest seen.
const chainAhead = 50

// signedBy returns the number of the secret that made a signature, or -1.
func (r *receiver) signedBy(path, signature string, h http.Header, body []byte) int {
	if signature == "" {
		return -1
	}
	latest := r.seen[path]
	for n := latest + chainAhead; n >= max(0, latest-chainAhead); n-- {
		mac := hmac.New(sha256.New, []byte(secretOf(path, n).Reveal()))
		mac.Write([]byte(h.Get("X-Webhook-Timestamp") + "."))
		mac.Write(body)
		if hmac.Equal([]byte("v1="+hex.EncodeToString(mac.Sum(nil))), []byte(signature)) {
			r.seen[path] = max(latest, n)
			return n
		}
	}
	return -1
}

// secretOf is the secret that an endpoint has after n rotations, known to all.
func secretOf(path string, n int) webhook.Secret {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", path, n))
	return webhook.NewSecret("whsec_" + base64.StdEncoding.EncodeToString(sum[:]))
}

func pathOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Path
}

func logPath(t *testing.T) string { return filepath.Join(t.TempDir(), "receiver.log") }
