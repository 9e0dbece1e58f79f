package interop_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
	stripe "github.com/stripe/stripe-go/v82/webhook"
)

// receiver is a server that asks the vendors' libraries of one language. See
// receiver.mjs, which this is the Go version of, for what it answers.
type receiver struct {
	*testing.T
	url string
}

// verdicts say, by library and by secret, which type of event was made of a
// request, or "refused: " and why.
type verdicts map[string]map[string]string

// receivers start one for each language.
var receivers = map[string]func(t *testing.T) *receiver{"go": startGo, "node": startNode}

// trust tells the receiver which secrets there are.
func (r *receiver) trust(secrets map[string]string) {
	r.Helper()
	r.ask(http.MethodPut, "/secrets", secrets, nil)
}

// sign has a library sign a text, and returns the headers.
func (r *receiver) sign(library, secret, text string) http.Header {
	r.Helper()
	var headers map[string]string
	r.ask(http.MethodPost, "/sign", map[string]string{"library": library, "secret": secret, "text": text}, &headers)
	h := http.Header{}
	for name, value := range headers {
		h.Set(name, value)
	}
	return h
}

func (r *receiver) ask(method, path string, body, into any) {
	r.Helper()
	text, err := json.Marshal(body)
	require.NoError(r, err)
	request, err := http.NewRequestWithContext(r.Context(), method, r.url+path, bytes.NewReader(text))
	require.NoError(r, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(r, err)
	defer response.Body.Close()
	require.Equal(r, http.StatusOK, response.StatusCode)
	if into != nil {
		require.NoError(r, json.NewDecoder(response.Body).Decode(into))
	}
}

// library is a vendor's, for Go.
type library struct {
	header string
	verify func(body []byte, h http.Header, secret string) (eventType string, err error)
	sign   func(body []byte, secret string) (map[string]string, error)
}

var libraries = map[string]library{
	"stripe": {
		header: "Elido-Signature",
		verify: func(body []byte, h http.Header, secret string) (string, error) {
			// An API version is nothing that our events could have.
			event, err := stripe.ConstructEventWithOptions(body, h.Get("Elido-Signature"), secret,
				stripe.ConstructEventOptions{IgnoreAPIVersionMismatch: true})
			if valid := stripe.ValidatePayload(body, h.Get("Elido-Signature"), secret); (valid == nil) != (err == nil) {
				return "", errors.Join(errors.New("ConstructEvent and ValidatePayload disagree"), valid, err)
			}
			return string(event.Type), err
		},
		sign: func(body []byte, secret string) (map[string]string, error) {
			signed := stripe.GenerateTestSignedPayload(&stripe.UnsignedPayload{Payload: body, Secret: secret})
			return map[string]string{"Elido-Signature": signed.Header}, nil
		},
	},
	"standardwebhooks": {
		header: "Webhook-Signature",
		verify: func(body []byte, h http.Header, secret string) (string, error) {
			w, err := standardwebhooks.NewWebhook(secret)
			if err == nil {
				err = w.Verify(body, h)
			}
			if err != nil {
				return "", err
			}
			var event struct{ Type string }
			err = json.Unmarshal(body, &event)
			return event.Type, err
		},
		sign: func(body []byte, secret string) (map[string]string, error) {
			w, err := standardwebhooks.NewWebhook(secret)
			if err != nil {
				return nil, err
			}
			now := time.Now()
			signature, err := w.Sign("7", now, body)
			return map[string]string{
				"Webhook-Id":        "7",
				"Webhook-Timestamp": strconv.FormatInt(now.Unix(), 10),
				"Webhook-Signature": signature,
			}, err
		},
	},
}

func startGo(t *testing.T) *receiver {
	var mu sync.Mutex
	var secrets map[string]string
	handle := func(mux *http.ServeMux, pattern string, answer func(r *http.Request, body []byte) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			var result any
			if err == nil {
				mu.Lock()
				result, err = answer(r, body)
				mu.Unlock()
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			_ = json.NewEncoder(w).Encode(result)
		})
	}
	mux := http.NewServeMux()
	handle(mux, "PUT /secrets", func(_ *http.Request, body []byte) (any, error) {
		secrets = nil
		return struct{}{}, json.Unmarshal(body, &secrets)
	})
	handle(mux, "POST /hooks", func(r *http.Request, body []byte) (any, error) {
		all := verdicts{}
		for name, l := range libraries {
			if r.Header.Get(l.header) == "" {
				continue
			}
			all[name] = map[string]string{}
			judge := func(which string, body []byte, secret string) {
				verdict, err := l.verify(body, r.Header, secret)
				if err != nil {
					verdict = "refused: " + err.Error()
				}
				all[name][which] = verdict
			}
			for which, secret := range secrets {
				judge(which, body, secret)
				judge(which+", altered", append(bytes.Clone(body), ' '), secret)
			}
		}
		return all, nil
	})
	handle(mux, "POST /sign", func(_ *http.Request, body []byte) (any, error) {
		var p struct{ Library, Secret, Text string }
		if err := json.Unmarshal(body, &p); err != nil {
			return nil, err
		}
		return libraries[p.Library].sign([]byte(p.Text), p.Secret)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return &receiver{t, server.URL}
}

// startNode runs receiver.mjs.
func startNode(t *testing.T) *receiver {
	node, err := exec.LookPath("node")
	if err != nil {
		unavailable(t, "node is not installed: Node.js 20 or later, https://nodejs.org")
	}
	for _, name := range []string{"stripe", "standardwebhooks"} {
		if _, err := os.Stat("node_modules/" + name + "/package.json"); err != nil {
			unavailable(t, "the npm package "+name+" is not installed: npm ci --prefix interop --ignore-scripts")
		}
	}
	_, err = os.ReadFile("receiver.mjs") // so that a change of it runs the test again
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), node, "receiver.mjs")
	cmd.WaitDelay = 2 * time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe() // it ends with it
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill() // this one alone
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the receiver's stderr:\n%s", stderr.String())
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err, "the receiver does not listen")
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	require.True(t, ok, line)
	return &receiver{t, url}
}

// unavailable ends a test that needs what this machine does not have. In CI
// everything has to be there.
func unavailable(t *testing.T, message string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(message)
	}
	t.Skip(message)
}
