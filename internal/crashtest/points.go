package crashtest

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
)

// killedAtEachPoint kills a process once at each point of an attempt, and lets
// another one finish. The receiver gets the request twice only if the process
// died between the request and the record of its outcome.
func killedAtEachPoint(t *testing.T, db Database) {
	for _, test := range []struct {
		point string
		hits  int
	}{
		{pointClaimed, 1},
		{pointRequesting, 1},
		{pointRequested, 2},
		{pointRecording, 2},
		{pointRecorded, 1},
	} {
		for _, publisher := range []string{"another process", "itself"} {
			t.Run(test.point+", published by "+publisher, func(t *testing.T) {
				t.Parallel()
				s := newScene(t, db, nil)
				s.endpoints("/")
				o := orders{Do: taskDrain, Point: test.point}
				if publisher == "itself" { // so that it is leased with the publish
					o.First, o.Marker = publishOne, "m"
				} else {
					s.run(orders{Do: taskPublish, First: publishOne, Marker: "m"})
				}
				if test.point == pointRequested {
					s.receiver.onRead(func(q request) {
						if q.Seq == 1 {
							s.process(q.Process).kill()
						}
					})
				}
				s.die(o)
				s.run(orders{Do: taskDrain, Ahead: later})
				totals := s.check()
				s.equal(1, totals.Kills, "kills")
				s.equal(1, totals.Deliveries, "deliveries")
				s.equal(test.hits, totals.Requests, "requests")
				s.equal(1, totals.Attempts, "attempts logged")
				s.equal(test.hits-1, totals.Interrupted, "requests interrupted")
			})
		}
	}
}

// killedThreeTimes kills three processes that have taken a delivery and not sent
// it. That must not use up its budget of three, however the receiver answers the
// fourth.
func killedThreeTimes(t *testing.T, db Database) {
	for _, test := range []struct {
		name     string
		answer   int
		attempts int
		status   store.Status
	}{
		{"then delivered", 200, 1, store.StatusDelivered},
		{"then failing", 500, 3, store.StatusFailed},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, db, func(request) int { return test.answer })
			s.endpoints("/")
			s.run(orders{Do: taskPublish, First: publishOne, Marker: "m"})
			for i := range 3 {
				s.die(orders{Do: taskDrain, Point: pointClaimed, Ahead: time.Duration(i) * later})
			}
			s.run(orders{Do: taskDrain, Ahead: 3 * later})
			totals := s.check()
			s.equal(3, totals.Kills, "kills")
			s.equal(test.attempts, totals.Requests, "requests")
			s.equal(test.attempts, totals.Attempts, "attempts logged")
			s.look(func(h *Handle, _ *webhook.Dispatcher) {
				d := s.deliveries(h)[0]
				s.equal(test.status, d.Status, "status")
				s.equal(test.attempts, d.Attempts, "attempts used")
				s.equal(0, d.Interruptions, "interruptions")
			})
		})
	}
}

// killedByItsPayload has a payload that kills whoever signs it. From the fifth
// time on it is left alone for longer each time, and there is a line in the log
// when it is taken again; meanwhile others are delivered.
func killedByItsPayload(t *testing.T, db Database) {
	s := newScene(t, db, nil)
	s.endpoints("/")
	s.run(orders{Do: taskPublish, First: publishOne, Marker: poison})
	const deaths = 7
	var ahead time.Duration
	for i := 1; i <= deaths; i++ {
		p := s.die(orders{Do: taskDrain, Poison: true, Ahead: ahead})
		line := fmt.Sprintf(`"interruptions":%d`, i-1)
		s.equal(i > 5, strings.Contains(p.said(), "interrupted often"), "a line in the log of the process that took it for the %d. time", i)
		s.equal(i > 5, strings.Contains(p.said(), line), "%s in that log", line)

		ends := s.nextDue()
		wait := store.RetakeDelay(i)
		if i >= 5 {
			s.equal(true, wait >= time.Minute && (i == 5 || wait == 2*store.RetakeDelay(i-1)), "growing delay")
			// Half a minute before its time it is left alone, and another one is not.
			marker := fmt.Sprintf("innocent%d", i)
			s.run(orders{Do: taskPublish, First: publishOne, Marker: marker})
			s.run(orders{Do: taskOnce, Poison: true, Ahead: time.Until(ends.Add(wait - wait/2))})
			s.look(func(h *Handle, _ *webhook.Dispatcher) {
				for _, d := range s.deliveries(h) {
					want := store.StatusDelivered
					if dataOf(&d).Marker == poison {
						want = store.StatusPending
						s.equal(i, d.Interruptions, "interruptions")
					}
					s.equal(want, d.Status, "status of %s", dataOf(&d).Marker)
				}
			})
			s.equal(ends.Add(wait), s.nextDue(), "when the payload is taken again")
		}
		ahead = time.Until(ends.Add(wait + time.Second))
	}
	// One that is run once at a time says so, too.
	s.equal(true, strings.Contains(s.die(orders{Do: taskOnce, Poison: true, Ahead: ahead}).said(), "interrupted often"), "a line in the log of RunOnce")
	s.run(orders{Do: taskDrain, Ahead: ahead + 2*time.Hour}) // whose code is mended
	totals := s.check()
	s.equal(deaths+1, totals.Kills, "kills")
	s.equal(totals.Deliveries, totals.Requests, "requests")
	s.equal(totals.Deliveries, totals.Attempts, "attempts")
}

// nextDue is when a claim could next give something.
func (s *scene) nextDue() (due time.Time) {
	s.look(func(h *Handle, _ *webhook.Dispatcher) {
		r, err := h.Store.Probe(s.Context(), store.ProbeParams{})
		s.must(err)
		due = r.NextDue
	})
	return due
}

// killedWhileOpening kills processes at steps of making the tables. The next one
// that opens the database gets them all.
func killedWhileOpening(t *testing.T, db Database) {
	for _, point := range db.Opening {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			for _, times := range steps(newScene(t, db, nil).count(orders{Do: taskOpen, Point: point})) {
				s := newScene(t, db, nil)
				s.die(orders{Do: taskOpen, Point: point, Times: times})
				// The next one does not get much further.
				s.start(orders{Do: taskOpen, Point: point, Times: max(times/2, 1)}).wait()
				s.endpoints("/")
				s.run(orders{Do: taskDrain, First: publishOne, Marker: "m"})
				s.equal(1, s.check().Requests, "requests")
			}
		})
	}
}

// killedAtEveryWrite follows one delivery from its publish to its end, and kills
// its process at the first write, then one at the second, and so on.
func killedAtEveryWrite(t *testing.T, db Database) {
	for _, point := range db.Writing {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			answered := map[int64]bool{}
			s := newScene(t, db, func(q request) int {
				mu.Lock()
				defer mu.Unlock()
				if !answered[q.Delivery] { // so that there is a retry
					answered[q.Delivery] = true
					return 500
				}
				return 200
			})
			s.endpoints("/a", "/b")
			o := orders{Do: taskDrain, First: publishOne, Marker: "m0", Point: point}
			// How calls share transactions is never twice the same, so the last
			// steps may not be reached.
			kills := 0
			for i, times := range steps(s.count(o)) {
				o.Marker, o.Times = fmt.Sprint("m", i+1), times
				p := s.start(o)
				p.wait()
				if p.killed() {
					kills++
				} else {
					p.mustEnd()
				}
				s.run(orders{Do: taskDrain, Ahead: later})
			}
			totals := s.check()
			s.equal(kills, totals.Kills, "kills")
			s.equal(true, kills >= 3, "a few kills")
			t.Log(totals)
		})
	}
}

// count returns how often a process comes to its point if nobody kills it.
func (s *scene) count(o orders) int {
	s.Helper()
	o.Times = math.MaxInt32
	p := s.run(o)
	n := 0
	for _, x := range (&diary{process: p}).entries() {
		n += x.Count
	}
	s.notEqual(0, n, "nobody came to %q", o.Point)
	return n
}

// steps returns some of the numbers from 1 to n, with both ends; all of them if
// there is time.
func steps(n int) []int {
	some := 5
	if thorough {
		some = 60
	}
	if n <= some {
		some = n
	}
	var list []int
	for i := range some {
		list = append(list, 1+i*(n-1)/max(some-1, 1))
	}
	return list
}
