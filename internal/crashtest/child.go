package crashtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
)

const workspace = 42

// ordersVariable is the environment variable that makes the test binary a child.
const ordersVariable = "WEBHOOK_CRASHTEST"

// orders say what a child is to do.
type orders struct {
	Database, Address string
	Process           int    // its number, from 1
	Journal           string // the file it writes down in what it does
	Do                string // one of the tasks
	Timeout           time.Duration

	// The child dies when it comes to Point for the Times-th time, and, with
	// Poison, from signing a payload that says so.
	Point  string
	Times  int
	Poison bool

	// Ahead is how far its clock is ahead, as the store sees it: stores read none
	// of their own, so leases run out, and retries come due, without waiting.
	Ahead time.Duration

	First  string // how to publish first, see publish.go
	Marker string // of what is published
	Seed   uint64 // of the load
}

// The tasks.
const (
	taskOpen    = "open"    // opens the store, and closes it
	taskPublish = "publish" // publishes, and delivers nothing
	taskOnce    = "once"    // one pass over what is due
	taskDrain   = "drain"   // delivers until nothing is pending
	taskServe   = "serve"   // delivers, and does everything else a host might
)

// The points of every store, in the order of an attempt. What a process did
// before has reached the store by then, and nothing else.
const (
	pointPublished  = "published"  // events are stored, their publisher does not know it yet
	pointClaimed    = "claimed"    // deliveries are leased, the queue does not know it yet
	pointRequesting = "requesting" // a request is signed, and not dialled for
	pointRequested  = "requested"  // the receiver has read it, and not answered: it kills
	pointRecording  = "recording"  // it was answered, and nobody wrote that down
	pointRecorded   = "recorded"   // that is stored, the queue does not know it yet
)

// Main makes this process a child, and does not return, if that is what it was
// started for.
func Main(databases ...Database) {
	text := os.Getenv(ordersVariable)
	if text == "" {
		return
	}
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for _, db := range databases {
		if db.Name == o.Database {
			if err := follow(db, o); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			os.Exit(0)
		}
	}
	fmt.Fprintf(os.Stderr, "there is no database %q\n", o.Database)
	os.Exit(2)
}

// A child is a process that follows orders.
type child struct {
	*webhook.Dispatcher
	orders
	handle  *Handle
	store   *watched
	journal *journal
}

func follow(db Database, o orders) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // until the test asks for the end, or has ended itself
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	j, err := openJournal(o.Journal)
	if err != nil {
		return err
	}
	f := &fuse{point: o.Point, times: int64(max(o.Times, 1))}
	handle, err := db.Open(ctx, o.Address, f.reached)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if err := work(ctx, o, f, handle, j); err != nil {
		return fmt.Errorf("%s: %w", o.Do, err)
	}
	if o.Point != "" {
		j.write(entry{Did: didCount, Count: int(f.count.Load())})
	}
	return handle.Close()
}

func work(ctx context.Context, o orders, f *fuse, handle *Handle, j *journal) (err error) {
	if o.Do == taskOpen {
		return nil
	}
	c := &child{orders: o, handle: handle, journal: j}
	c.store = &watched{Store: handle.Store, fuse: f, journal: j, ahead: o.Ahead, asked: make(chan struct{}), attempts: map[int64]int{}}
	if c.Dispatcher, err = webhook.New(c.store, o.config(&mark{c, f})); err != nil {
		return err
	}
	return c.do(ctx)
}

// config is that of every child.
func (o orders) config(sign webhook.Scheme) webhook.Config {
	return webhook.Config{
		Egress:  webhook.Egress{AllowLoopback: true},
		Signer:  webhook.Signer{Schemes: []webhook.Scheme{webhook.ElidoV1, sign}},
		Retry:   webhook.RetryPolicy{Delays: []time.Duration{20 * time.Millisecond, 40 * time.Millisecond}},
		Timeout: o.Timeout,
		Poll:    100 * time.Millisecond,
		Logger:  slog.New(slog.NewJSONHandler(os.Stderr, nil)),
	}
}

func (c *child) do(ctx context.Context) error {
	switch c.Do {
	case taskPublish:
		return c.publish(ctx, c.First, c.Marker)
	case taskOnce:
		_, err := c.RunOnce(ctx)
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	select {
	case <-c.store.asked: // the queue runs: what is published is handed to it
	case err := <-done:
		return err
	}
	fmt.Println("ready")
	if c.First != "" {
		if err := c.publish(ctx, c.First, c.Marker); err != nil {
			return err
		}
	}
	if c.Do == taskServe {
		c.load(ctx)
		return <-done
	}
	for ctx.Err() == nil {
		pending, err := c.handle.Store.Deliveries(ctx, store.DeliveryFilter{
			WorkspaceID: workspace, Status: store.StatusPending, Limit: 1})
		if err != nil {
			return err
		}
		if len(pending) == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	stop()
	return <-done
}

// mark is a signature scheme that tells the receiver which process a request is
// from and which attempt it is, and writes down that there will be one.
type mark struct {
	*child
	fuse *fuse
}

const (
	headerProcess = "X-Crash-Process"
	headerAttempt = "X-Crash-Attempt"
)

// poison in a payload kills a child that is told to mind it.
const poison = "poison"

func (m *mark) Prepare(_, _ webhook.Secret) (webhook.SignFunc, error) {
	return func(h http.Header, message webhook.Message) {
		if m.Poison && strings.Contains(string(message.Body), poison) {
			die()
		}
		m.store.attempting(message.DeliveryID, message.Attempt)
		m.journal.write(entry{Did: didSend, Delivery: message.DeliveryID, Attempt: message.Attempt})
		m.fuse.reached(pointRequesting)
		h[headerProcess] = []string{strconv.Itoa(m.Process)}
		h[headerAttempt] = []string{strconv.Itoa(message.Attempt)}
	}, nil
}
