package crashtest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// thorough asks for every step where the suite makes do with some.
var thorough bool

// Thorough makes Run kill at every step of everything, instead of at some.
func Thorough() { thorough = true }

// Torture kills processes at random times: always two at once, which share the
// database and do everything that hosts do, to receivers of which one is well,
// one fails now and then, one is slow and sometimes silent, and one always fails.
// After so many kills another process finishes what is left.
func Torture(t *testing.T, db Database, kills int) {
	begin := time.Now()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := &dice{r: rand.New(rand.NewPCG(seed, 0))}
	s := newScene(t, db, func(q request) int {
		n := dice.roll(100)
		switch q.Path {
		case "/flaky":
			switch {
			case n < 20:
				return 500
			case n < 30:
				return 429
			case n < 33:
				return 0
			}
		case "/slow":
			time.Sleep(time.Duration(n) * time.Millisecond / 2)
			if n < 3 {
				return 0
			}
		case "/down":
			return 503
		}
		return 200
	})
	s.endpoints("/well", "/flaky", "/slow", "/down")

	var left atomic.Int64
	left.Store(int64(kills))
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for left.Add(-1) >= 0 {
				p := s.start(orders{Do: taskServe, Timeout: loadTimeout, Seed: uint64(dice.roll(1 << 30))})
				if dice.roll(10) > 0 {
					select {
					case <-p.ready:
					case <-p.done:
						t.Errorf("process %d ended by itself: %v\n%s", p.Process, p.err, p.said())
						return
					}
				}
				time.Sleep(dice.life())
				p.kill()
			}
		})
	}
	group.Wait()
	killed := time.Since(begin)
	s.run(orders{Do: taskDrain, Timeout: loadTimeout, Ahead: 24 * time.Hour})
	finished := time.Since(begin)
	totals := s.check()
	s.equal(kills, totals.Kills, "kills")
	t.Logf("%s (%v of killing, %v of finishing, %v of checking)", totals, killed.Round(time.Second),
		(finished - killed).Round(time.Second), (time.Since(begin) - finished).Round(time.Second))
}

// dice are thrown by several goroutines.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) roll(sides int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(sides)
}

// life is how long a process lives: mostly short, sometimes not.
func (d *dice) life() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return min(time.Duration(d.r.ExpFloat64()*float64(800*time.Millisecond)), 4*time.Second)
}

// Totals are what came of a scene.
type Totals struct {
	Kills       int // processes killed
	Confirmed   int // publishes that returned a receipt
	Events      int // stored
	Deliveries  int // of them
	Requests    int // that the receiver read
	Attempts    int // logged
	Unsent      int // of them, that never reached the receiver
	Interrupted int // requests whose outcome nobody recorded
	InFlight    int // requests that killed processes had signed and not recorded
	Dropped     int // outcomes that came too late, from processes that lived
	Retries     int // by hand
	Rotations   int
	Lost        int // deliveries that a publish had confirmed and that did not come to their end
}

func (n Totals) String() string {
	return fmt.Sprintf("kills %d, publishes confirmed %d, events %d, deliveries %d, requests %d, attempts logged %d (%d never sent), "+
		"interrupted %d (of %d in flight at kills), dropped %d, manual retries %d, rotations %d, lost: %d",
		n.Kills, n.Confirmed, n.Events, n.Deliveries, n.Requests, n.Attempts, n.Unsent, n.Interrupted, n.InFlight, n.Dropped,
		n.Retries, n.Rotations, n.Lost)
}
