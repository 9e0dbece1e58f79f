package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/elido-app/webhook/verify"
)

// receiver is a customer's server, that answers as it is told.
type receiver struct {
	url string

	mu       sync.Mutex
	verifier *verify.Verifier // of the endpoint that was there from the start
	mood     string
	log      []received
}

// received is a request as the home page shows it.
type received struct {
	At       string
	Type     string
	Delivery string
	Signed   string
	Answer   int
}

// moods are the ways to answer.
var moods = []struct{ Name, Text string }{
	{"works", "200, at once"},
	{"fails", "500, with a page of HTML"},
	{"slow", "200, after two seconds"},
	{"rude", "closes the connection"},
}

func (s *receiver) trust(secret string) error {
	v, err := verify.New(secret)
	s.verifier = v
	return err
}

// tell says how to answer from now on, and reports whether there is such a way.
func (s *receiver) tell(mood string) bool {
	for _, m := range moods {
		if m.Name == mood {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.mood = mood
			return true
		}
	}
	return false
}

func (s *receiver) told() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mood == "" {
		return moods[0].Name
	}
	return s.mood
}

// ServeHTTP takes a request and answers it.
func (s *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	entry := received{
		At: time.Now().UTC().Format("15:04:05"), Type: r.Header.Get("X-Webhook-Event"), Delivery: r.Header.Get("X-Webhook-Delivery"),
		Signed: "by another endpoint, whose secret this receiver does not have", Answer: http.StatusOK,
	}
	if s.verifier != nil {
		if err := s.verifier.Verify(r.Header, body); err == nil {
			entry.Signed = "verified"
		}
	}
	mood := s.told()
	if mood == "fails" {
		entry.Answer = http.StatusInternalServerError
	}
	s.mu.Lock()
	s.log = append(s.log[max(0, len(s.log)-19):], entry)
	s.mu.Unlock()
	switch mood {
	case "slow":
		select {
		case <-time.After(2 * time.Second):
		case <-r.Context().Done():
		}
	case "rude":
		panic(http.ErrAbortHandler)
	case "fails":
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = io.WriteString(w, "<!doctype html>\n<h1>Internal Server Error</h1>\n<script>alert('out of order')</script>\n<p>The database is on holiday.</p>\n")
		return
	}
	fmt.Fprintln(w, "thank you")
}

// recent returns what was received lately, newest first.
func (s *receiver) recent() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Clone(s.log)
	slices.Reverse(list)
	return list
}
