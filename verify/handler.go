package verify

import (
	"context"
	"errors"
	"net/http"
)

// A HandlerFunc does something with a verified event. The sender waits 10
// seconds for an answer, then hangs up, which ends ctx: store the event and
// work later. An error makes the sender try again.
type HandlerFunc func(ctx context.Context, ev Event) error

// Handler receives webhooks: it reads and verifies each request as
// [Verifier.Request] does, and calls next with the event.
//
// It answers 200 if next returned nil, 405 to anything but POST, and otherwise
// what [StatusCode] says. Senders repeat whatever is not answered with a 2xx.
// Why a request was refused is in the answer, for the sender's delivery log;
// what next returned is not, and goes to OnError alone.
func (v *Verifier) Handler(next HandlerFunc) http.Handler {
	if next == nil {
		panic("verify: Handler(nil)")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
			return
		}
		// Beside the limit in Request: this one has the server close the
		// connection rather than read on to its end.
		r.Body = http.MaxBytesReader(w, r.Body, v.maxBody())
		ev, err := v.Request(r)
		verified := err == nil
		if verified {
			err = next(r.Context(), ev)
		}
		if err == nil {
			w.WriteHeader(http.StatusOK)
			return
		}
		if v.OnError != nil {
			v.OnError(r, err)
		}
		code := StatusCode(err)
		text := http.StatusText(code)
		if !verified && !errors.Is(err, errRead) { // that one holds a foreign error
			text = err.Error()
		}
		http.Error(w, text, code)
	})
}
