package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elido-app/webhook/verify"
)

// receiver is the one that all contenders send to: net/http, which reads the
// body, counts it and answers 200 without a body. By path:
//
//	/e/…     counted
//	/t/…     counted, and the time since the "t" in the body is kept
//	/hang/…  counted apart, and never answered
//
// It is asked about its counts on a listener of its own, so that asking does not
// disturb it.
type receiver struct {
	count  atomic.Int64
	hung   atomic.Int64
	target atomic.Int64 // the count at which reached is closed

	mu      sync.Mutex
	reached chan struct{}
	last    time.Time // when the target was reached
	first   time.Time // when the first one since the reset arrived
	delays  []time.Duration
	sample  Sample

	buffers sync.Pool
	ended   chan struct{}
}

// Arrivals is what a receiver says.
type Arrivals struct {
	Count int64         `json:"count"`
	Hung  int64         `json:"hung"` // since it began
	First time.Time     `json:"first"`
	Last  time.Time     `json:"last"` // when the count waited for was reached
	CPU   time.Duration `json:"cpu"`  // of the receiver, since it began
}

// Sample is the first request since the last reset.
type Sample struct {
	Header http.Header `json:"header"`
	Body   []byte      `json:"body"`
}

// addresses are a receiver's first line.
type addresses struct {
	URL     string `json:"url"`
	Control string `json:"control"`
}

func receiverChild(ctx context.Context, _ []byte) (any, error) {
	r := &receiver{ended: make(chan struct{}), reached: make(chan struct{})}
	r.buffers.New = func() any { b := make([]byte, 4096); return &b }
	r.target.Store(-1)
	var listen net.ListenConfig
	data, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	control, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	servers := []*http.Server{{Handler: r}, {Handler: r.control()}}
	failed := make(chan error, 2)
	for i, l := range []net.Listener{data, control} {
		go func() { failed <- servers[i].Serve(l) }()
	}
	line, err := json.Marshal(addresses{"http://" + data.Addr().String(), "http://" + control.Addr().String()})
	if err != nil {
		return nil, err
	}
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	close(r.ended)
	for _, s := range servers {
		_ = s.Close()
	}
	return nil, err
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	buffer := r.buffers.Get().(*[]byte)
	n, err := io.ReadFull(req.Body, *buffer)
	if err != io.ErrUnexpectedEOF { // longer than any event here, or broken
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	body := (*buffer)[:n]
	switch req.URL.Path[1] {
	case 'h':
		r.buffers.Put(buffer)
		r.hung.Add(1)
		select {
		case <-req.Context().Done():
		case <-r.ended:
		}
		return
	case 't':
		r.timed(body)
	}
	switch r.count.Add(1) {
	case 1:
		r.mu.Lock()
		r.first = time.Now()
		r.sample = Sample{req.Header.Clone(), bytes.Clone(body)}
		r.mu.Unlock()
	case r.target.Load():
		r.mu.Lock()
		r.reach()
		r.mu.Unlock()
	}
	r.buffers.Put(buffer)
	w.WriteHeader(http.StatusOK)
}

// reach notes that the target is reached. The caller holds the lock.
func (r *receiver) reach() {
	select {
	case <-r.reached:
	default:
		r.last = time.Now()
		close(r.reached)
	}
}

// timed keeps how long ago the body says it was published.
func (r *receiver) timed(body []byte) {
	now := time.Now()
	_, rest, ok := bytes.Cut(body, []byte(`"t":"`))
	if !ok || len(rest) < stampDigits {
		return
	}
	nanos, err := strconv.ParseInt(string(rest[:stampDigits]), 10, 64)
	if err != nil {
		return
	}
	r.mu.Lock()
	r.delays = append(r.delays, now.Sub(time.Unix(0, nanos)))
	r.mu.Unlock()
}

func (r *receiver) control() http.Handler {
	mux := http.NewServeMux()
	// reset begins a new count, up to n.
	mux.HandleFunc("/reset", func(w http.ResponseWriter, req *http.Request) {
		n, _ := strconv.ParseInt(req.FormValue("n"), 10, 64)
		r.mu.Lock()
		r.target.Store(n)
		r.reached = make(chan struct{})
		r.count.Store(0)
		r.delays = nil
		r.first, r.last = time.Time{}, time.Time{}
		if n == 0 {
			r.reach()
		}
		r.mu.Unlock()
		r.say(w)
	})
	// wait answers when that count is reached.
	mux.HandleFunc("/wait", func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		reached := r.reached
		r.mu.Unlock()
		select {
		case <-reached:
		case <-req.Context().Done():
		case <-r.ended:
		}
		r.say(w)
	})
	mux.HandleFunc("/now", func(w http.ResponseWriter, _ *http.Request) { r.say(w) })
	mux.HandleFunc("/sample", func(w http.ResponseWriter, _ *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		_ = json.NewEncoder(w).Encode(r.sample)
	})
	mux.HandleFunc("/delays", func(w http.ResponseWriter, _ *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		_ = json.NewEncoder(w).Encode(r.delays)
	})
	return mux
}

func (r *receiver) say(w http.ResponseWriter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = json.NewEncoder(w).Encode(Arrivals{r.count.Load(), r.hung.Load(), r.first, r.last, cpu()})
}

// Receiver is the other side: a handle on a receiver in another process.
type Receiver struct {
	addresses
	process *process
}

func startReceiver(ctx context.Context) (*Receiver, error) {
	p, err := start("receiver", struct{}{})
	if err != nil {
		return nil, err
	}
	r := &Receiver{process: p}
	line, err := p.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &r.addresses)
	}
	if err == nil {
		_, err = r.now(ctx)
	}
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("receiver: %w", err)
	}
	return r, nil
}

func (r *Receiver) stop() { r.process.stop() }

// urls returns the URLs of n endpoints of a kind: "e", "t" or "hang".
func (a addresses) urls(kind string, n int) []string {
	urls := make([]string, n)
	for i := range urls {
		urls[i] = a.URL + "/" + kind + "/" + strconv.Itoa(i)
	}
	return urls
}

func (a addresses) ask(ctx context.Context, what string, query url.Values, answer any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.Control+what+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return json.NewDecoder(resp.Body).Decode(answer)
}

func (a addresses) now(ctx context.Context) (v Arrivals, err error) {
	err = a.ask(ctx, "/now", nil, &v)
	return v, err
}

// reset makes the receiver count anew, up to n.
func (a addresses) reset(ctx context.Context, n int) (v Arrivals, err error) {
	err = a.ask(ctx, "/reset", url.Values{"n": {strconv.Itoa(n)}}, &v)
	return v, err
}

// wait waits until as many arrived as reset was told.
func (a addresses) wait(ctx context.Context) (v Arrivals, err error) {
	err = a.ask(ctx, "/wait", nil, &v)
	if err == nil && v.Last.IsZero() {
		err = fmt.Errorf("only %d arrived", v.Count)
	}
	return v, err
}

func (a addresses) delays(ctx context.Context) (v []time.Duration, err error) {
	err = a.ask(ctx, "/delays", nil, &v)
	return v, err
}

// check returns an error unless the first request since the reset is as it should
// be: signed, and with the whole body.
func (a addresses) check(ctx context.Context) error {
	var s Sample
	if err := a.ask(ctx, "/sample", nil, &s); err != nil {
		return err
	}
	v, err := verify.New(benchSecret)
	if err != nil {
		return err
	}
	if len(s.Body) != bodySize {
		return fmt.Errorf("a body of %d bytes arrived, not %d", len(s.Body), bodySize)
	}
	return v.Verify(s.Header, s.Body)
}
