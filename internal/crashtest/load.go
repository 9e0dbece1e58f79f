package crashtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/elido-app/webhook"
)

// keys is how many idempotency keys, and orderingKeys how many ordering keys,
// processes share.
const (
	keys         = 300
	orderingKeys = 5
)

// load does, until ctx ends, what hosts do: each thing in a goroutine of its own,
// again and again, with pauses.
func (c *child) load(ctx context.Context) {
	type work struct {
		every time.Duration // about
		do    func(r *rand.Rand, marker string) error
	}
	list := []work{
		{60 * time.Millisecond, func(_ *rand.Rand, marker string) error { return c.publish(ctx, publishOne, marker) }},
		{150 * time.Millisecond, func(_ *rand.Rand, marker string) error { return c.publish(ctx, publishBatch, marker) }},
		{150 * time.Millisecond, func(r *rand.Rand, marker string) error { return c.ordered(ctx, r, marker) }},
		{100 * time.Millisecond, func(r *rand.Rand, _ string) error {
			return c.publish(ctx, publishKeyed, fmt.Sprintf("key%d", r.IntN(keys)))
		}},
		{60 * time.Millisecond, func(r *rand.Rand, _ string) error { return c.again(ctx, r) }},
		{200 * time.Millisecond, func(r *rand.Rand, _ string) error { return c.rotate(ctx, r) }},
	}
	if c.handle.InTx != nil {
		list = append(list,
			work{150 * time.Millisecond, func(_ *rand.Rand, marker string) error { return c.publish(ctx, publishTx, marker) }},
			work{400 * time.Millisecond, func(_ *rand.Rand, marker string) error { return c.undo(ctx, marker) }})
	}
	var group sync.WaitGroup
	for i, w := range list {
		group.Go(func() {
			r := rand.New(rand.NewPCG(c.Seed, uint64(i)))
			for n := 0; ctx.Err() == nil; n++ {
				err := w.do(r, fmt.Sprintf("p%d.%d.%d", c.Process, i, n))
				if err != nil && ctx.Err() == nil {
					c.journal.write(entry{Did: didEncounter, Error: err.Error()})
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Duration(r.Int64N(int64(2 * w.every)))):
				}
			}
		})
	}
	group.Wait()
}

// ordered publishes with an ordering key.
func (c *child) ordered(ctx context.Context, r *rand.Rand, marker string) error {
	event := eventOf(publishOne, marker)
	event.OrderingKey = fmt.Sprintf("order%d", r.IntN(orderingKeys))
	receipt, err := c.Publish(ctx, event)
	if err == nil {
		c.confirm(marker, receipt)
	}
	return err
}

// again retries something by hand.
func (c *child) again(ctx context.Context, r *rand.Rand) error {
	ended := []webhook.Status{webhook.StatusDelivered, webhook.StatusFailed}[r.IntN(2)]
	page, err := c.Deliveries(ctx, webhook.DeliveryQuery{WorkspaceID: workspace, Status: ended, Limit: 20})
	if err != nil || len(page.Deliveries) == 0 {
		return err
	}
	d := page.Deliveries[r.IntN(len(page.Deliveries))]
	if d.OrderingKey != "" { // it would go before others of its key
		return nil
	}
	c.journal.write(entry{Did: didRetrying, Delivery: d.ID})
	switch _, err = c.Retry(ctx, workspace, d.ID); {
	case err == nil:
		c.journal.write(entry{Did: didRetry, Delivery: d.ID})
	case errors.Is(err, webhook.ErrPending):
		c.journal.write(entry{Did: didRefuse, Delivery: d.ID})
		err = nil
	}
	return err
}

// rotate replaces the secret of some endpoint by the next of its chain.
func (c *child) rotate(ctx context.Context, r *rand.Rand) error {
	list, err := c.Endpoints(ctx, workspace, 0, 0)
	if err != nil {
		return err
	}
	e := list[r.IntN(len(list))]
	c.journal.write(entry{Did: didRotating, Endpoint: e.ID})
	_, _, err = c.RotateSecret(ctx, workspace, e.ID, webhook.RotateOptions{
		Seen: &e.Rotations, Secret: secretOf(pathOf(e.URL), e.Rotations+1)})
	switch {
	case err == nil:
		c.journal.write(entry{Did: didRotate, Endpoint: e.ID})
	case errors.Is(err, webhook.ErrConflict):
		c.journal.write(entry{Did: didConflict, Endpoint: e.ID})
		err = nil
	}
	return err
}
