package crashtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
)

const (
	calmTimeout = 5 * time.Second // of children that make one attempt or two
	loadTimeout = time.Second     // of children that make many

	// later is how far a child's clock has to be ahead to find that the leases of
	// one before it have run out.
	later = 10 * time.Minute
)

// A scene is an empty database, a receiver, and the processes that come and go.
type scene struct {
	*testing.T
	db       Database
	address  string
	dir      string
	receiver *receiver

	mu        sync.Mutex
	processes []*process
}

// newScene begins with nothing but a receiver that answers 200, or as answer
// says: with a status, 0 for not at all.
func newScene(t *testing.T, db Database, answer func(request) int) *scene {
	return &scene{T: t, db: db, address: db.Create(t), dir: t.TempDir(), receiver: newReceiver(t, answer)}
}

// look opens the database for as long as f runs. Between the lives of processes
// nobody else has it open, so that each finds what the last one left.
func (s *scene) look(f func(h *Handle, d *webhook.Dispatcher)) {
	s.Helper()
	h, err := s.db.Open(s.Context(), s.address, func(string) {})
	s.must(err)
	defer func() { s.must(h.Close()) }()
	config := orders{Timeout: calmTimeout}.config(webhook.ElidoV1)
	config.Logger = slog.New(slog.DiscardHandler)
	d, err := webhook.New(h.Store, config)
	s.must(err)
	f(h, d)
}

func (s *scene) transactions() (possible bool) {
	s.look(func(h *Handle, _ *webhook.Dispatcher) { possible = h.InTx != nil })
	return possible
}

// endpoints makes one for each path at the receiver. All want everything.
func (s *scene) endpoints(paths ...string) {
	s.Helper()
	s.look(func(_ *Handle, d *webhook.Dispatcher) {
		for _, path := range paths {
			_, _, err := d.CreateEndpoint(s.Context(), webhook.EndpointParams{
				WorkspaceID: workspace, URL: s.receiver.URL + path, Events: []string{"link.*"}, Secret: secretOf(path, 0)})
			s.must(err)
		}
	})
}

// deliveries returns all there are.
func (s *scene) deliveries(h *Handle) []store.Delivery {
	s.Helper()
	var all []store.Delivery
	f := store.DeliveryFilter{WorkspaceID: workspace, Limit: 500}
	for {
		page, err := h.Store.Deliveries(s.Context(), f)
		s.must(err)
		all = append(all, page...)
		if len(page) < f.Limit {
			return all
		}
		last := page[len(page)-1]
		f.Before = store.Position{CreatedAt: last.CreatedAt, DeliveryID: last.ID}
	}
}

// stored returns how many deliveries there are of a publish.
func (s *scene) stored(marker string) (n int) {
	s.look(func(h *Handle, _ *webhook.Dispatcher) {
		for _, d := range s.deliveries(h) {
			if whole, _, _ := strings.Cut(dataOf(&d).Marker, partOf); whole == marker {
				n++
			}
		}
	})
	return n
}

func dataOf(d *store.Delivery) data {
	var envelope struct{ Data data }
	_ = json.Unmarshal(d.Payload, &envelope) // then there is none
	return envelope.Data
}

// A process is a child as its parent sees it.
type process struct {
	*scene
	orders
	cmd   *exec.Cmd
	stdin io.Closer
	log   string // what it printed to its standard error
	ready chan struct{}
	done  chan struct{} // closed when it has ended
	err   error         // how
}

// start starts a process.
func (s *scene) start(o orders) *process {
	s.Helper()
	p := &process{scene: s, orders: o, ready: make(chan struct{}), done: make(chan struct{})}
	s.mu.Lock() // to its start: what it sends is looked up here
	defer s.mu.Unlock()
	s.processes = append(s.processes, p)
	p.Process = len(s.processes)
	p.Database, p.Address = s.db.Name, s.address
	p.Journal = filepath.Join(s.dir, fmt.Sprintf("%d.journal", p.Process))
	p.log = filepath.Join(s.dir, fmt.Sprintf("%d.log", p.Process))
	if p.Timeout == 0 {
		p.Timeout = calmTimeout
	}
	text, err := json.Marshal(p.orders)
	s.must(err)
	self, err := os.Executable()
	s.must(err)
	log, err := os.Create(p.log)
	s.must(err)
	p.cmd = exec.CommandContext(s.Context(), self) //nolint:gosec // this very program
	p.cmd.Env = append(os.Environ(), ordersVariable+"="+string(text))
	p.cmd.Stderr = log
	p.cmd.Stdout = &signal{ready: p.ready}
	p.stdin, err = p.cmd.StdinPipe()
	s.must(err)
	s.must(p.cmd.Start())
	go func() {
		p.err = p.cmd.Wait()
		_ = log.Close()
		close(p.done)
	}()
	return p
}

// signal closes a channel with the first thing that is written to it.
type signal struct {
	once  sync.Once
	ready chan struct{}
}

func (s *signal) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.ready) })
	return len(p), nil
}

// kill kills the process, and returns when it is dead.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.done
}

func (p *process) wait() { <-p.done }

// killed reports whether the process, which has ended, was killed.
func (p *process) killed() bool {
	var exit *exec.ExitError
	return errors.As(p.err, &exit) && !exit.Exited()
}

// mustEnd fails the test unless the process has come to its end by itself.
func (p *process) mustEnd() {
	p.Helper()
	if p.err != nil {
		p.Fatalf("process %d (%s): %v\n%s", p.Process, p.Do, p.err, p.said())
	}
}

func (p *process) said() string {
	b, err := os.ReadFile(p.log)
	p.must(err)
	return string(b)
}

// run runs a process that must come to its end.
func (s *scene) run(o orders) *process {
	s.Helper()
	p := s.start(o)
	p.wait()
	p.mustEnd()
	return p
}

// die runs a process that must not.
func (s *scene) die(o orders) *process {
	s.Helper()
	p := s.start(o)
	p.wait()
	if !p.killed() {
		s.Fatalf("process %d (%s) was not killed at %q: %v\n%s", p.Process, p.Do, p.Point, p.err, p.said())
	}
	return p
}

func (s *scene) process(n int) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n < 1 || n > len(s.processes) {
		return nil
	}
	return s.processes[n-1]
}

func (s *scene) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *scene) equal(want, got any, format string, args ...any) {
	s.Helper()
	if got != want {
		s.Fatalf("%s: %v, not %v", fmt.Sprintf(format, args...), got, want)
	}
}

func (s *scene) notEqual(not, got any, format string, args ...any) {
	s.Helper()
	if got == not {
		s.Fatalf("%s: %v", fmt.Sprintf(format, args...), got)
	}
}
