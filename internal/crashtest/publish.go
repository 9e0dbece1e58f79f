package crashtest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
)

// The ways to publish.
const (
	publishOne   = "one event"
	publishBatch = "a batch"
	publishTx    = "in a transaction"
	publishKeyed = "with an idempotency key"
)

// batchSize is how many events a batch has.
const batchSize = 3

// data is that of all events.
type data struct {
	Marker string // tells events apart
	How    string // it was published
}

// partOf is in the markers of a batch's events.
const partOf = ".part"

func part(marker string, i int) string { return fmt.Sprint(marker, partOf, i) }

func eventOf(how, marker string) webhook.Event {
	return webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: data{marker, how}}
}

var errUndo = errors.New("the host thinks better of it")

// publish publishes once, and writes down the receipts.
func (c *child) publish(ctx context.Context, how, marker string) error {
	event := eventOf(how, marker)
	switch how {
	case publishBatch:
		var events []webhook.Event
		for i := range batchSize {
			events = append(events, eventOf(how, part(marker, i)))
		}
		receipts, err := c.PublishMany(ctx, events)
		for i, r := range receipts {
			c.confirm(part(marker, i), r)
		}
		return err
	case publishTx:
		var r webhook.Receipt
		err := c.handle.InTx(ctx, marker, func(p store.Publisher) (err error) {
			r, err = c.PublishTx(ctx, inTx{c.store, p}, event)
			return err
		})
		if err != nil {
			return err
		}
		c.store.fuse.reached(pointPublished)
		c.confirm(marker, r)
		c.Wake()
		return nil
	case publishKeyed:
		event.IdempotencyKey = marker
	}
	r, err := c.Publish(ctx, event)
	if err != nil {
		return err
	}
	c.confirm(marker, r)
	return nil
}

func (c *child) confirm(marker string, r webhook.Receipt) {
	c.journal.write(entry{Did: didConfirm, Marker: marker, Event: r.EventID, IDs: r.DeliveryIDs})
}

// undo publishes in a transaction of the host's that is rolled back.
func (c *child) undo(ctx context.Context, marker string) error {
	err := c.handle.InTx(ctx, marker, func(p store.Publisher) error {
		_, err := c.PublishTx(ctx, inTx{c.store, p}, eventOf(publishTx, marker))
		return errors.Join(errUndo, err)
	})
	if err != nil && err.Error() == errUndo.Error() {
		c.journal.write(entry{Did: didUndo, Marker: marker})
		return nil
	}
	return err
}

// killedWhilePublishing kills publishers at every write of theirs, and when all
// is stored but nobody told them. Whole events are there, or nothing of them,
// and to publish again with the same key makes up for not knowing.
func killedWhilePublishing(t *testing.T, db Database) {
	ways := []string{publishOne, publishBatch, publishKeyed}
	if newScene(t, db, nil).transactions() {
		ways = append(ways, publishTx)
	}
	for _, how := range ways {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, db, nil)
			s.endpoints("/a", "/b")
			n := 0
			publish := func(o orders) (p *process, stored int) {
				n++
				o.Do, o.First, o.Marker = taskPublish, how, fmt.Sprintf("m%d", n)
				p = s.start(o)
				p.wait()
				return p, s.stored(o.Marker)
			}
			whole := 2
			if how == publishBatch {
				whole *= batchSize
			}
			kills := 0
			for _, point := range db.Writing {
				n++
				o := orders{Do: taskPublish, First: how, Marker: fmt.Sprintf("m%d", n), Point: point}
				for _, times := range steps(s.count(o)) {
					p, stored := publish(orders{Point: point, Times: times})
					if !p.killed() { // where others wait already there is less to write
						p.mustEnd()
						s.equal(whole, stored, "deliveries of a publish that was not killed")
						continue
					}
					kills++
					s.equal(0, stored, "deliveries of a publish that was killed at %s, the %d.", point, times)
				}
			}
			s.equal(true, kills >= 2*len(db.Writing), "a few kills")
			p, stored := publish(orders{Point: pointPublished})
			s.equal(true, p.killed(), "killed")
			s.equal(whole, stored, "deliveries of a publish that was killed when it was stored")

			if how == publishKeyed {
				for i := 1; i <= n; i++ {
					marker := fmt.Sprintf("m%d", i)
					s.run(orders{Do: taskPublish, First: how, Marker: marker})
					s.equal(whole, s.stored(marker), "deliveries after publishing again with the same key")
				}
			}
			s.run(orders{Do: taskDrain, Ahead: later})
			totals := s.check()
			s.equal(totals.Deliveries, totals.Requests, "requests")
		})
	}
}
