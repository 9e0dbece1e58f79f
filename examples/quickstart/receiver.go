package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/verify"
)

// receiver is a customer's server: it verifies what it gets with package verify.
type receiver struct {
	*httptest.Server
	events chan verify.Event

	mu       sync.Mutex
	verifier *verify.Verifier
	broken   bool
	previous bool // the last request verified by its previous signature alone
	last     error
}

func startReceiver() *receiver {
	r := &receiver{events: make(chan verify.Event, 100)}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	return r
}

// trust makes a secret the only one that the receiver accepts.
func (r *receiver) trust(secret webhook.Secret) {
	v, err := verify.New(secret.Reveal())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verifier, r.last = v, err
}

func (r *receiver) breakDown(broken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = broken
}

func (r *receiver) usedPrevious() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.previous
}

func (r *receiver) serve(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken {
		http.Error(w, "out of paper", http.StatusInternalServerError)
		return
	}
	event, err := r.verifier.Request(req)
	if err != nil {
		r.last = err
		http.Error(w, err.Error(), verify.StatusCode(err))
		return
	}
	// Would it have verified without the previous signature?
	header := req.Header.Clone()
	header.Del("X-Elido-Signature-Previous")
	r.previous = errors.Is(r.verifier.Verify(header, event.Body), verify.ErrSignature)
	r.events <- event
}

// next waits for the next verified event.
func (r *receiver) next(ctx context.Context) (verify.Event, error) {
	select {
	case event := <-r.events:
		return event, nil
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		return verify.Event{}, fmt.Errorf("nothing arrived; the last request was refused: %w", errors.Join(r.last, ctx.Err()))
	}
}
