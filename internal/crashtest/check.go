package crashtest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
)

// An evidence is all that is known when a scene is over.
type evidence struct {
	deliveries []store.Delivery
	attempts   map[int64][]store.Attempt
	endpoints  []webhook.Endpoint
	notes      map[string]bool // nil: the store takes part in no transactions
	requests   map[int64][]request
	journals   []diary // of the processes, in order
	Totals

	problems []string
}

// A diary is what one process wrote down, by delivery where it is about one.
type diary struct {
	*process
	sent, recorded, dropped map[sending]int // the last two with the status
	retrying, retried       map[int64]int   // by hand, how often
	confirmed               []entry         // receipts
	undone                  []string        // markers of transactions
}

type sending struct {
	delivery int64
	attempt  int
}

// check asks that everything has come to its end, and that the receiver's log,
// the processes' journals and the delivery log agree:
//
//   - What a publish confirmed has ended: delivered, or failed after exactly as
//     many recorded failures as it had attempts. No attempt follows a success, or
//     the last of a budget, unless somebody retried by hand.
//   - Each request belongs to an attempt of the log, and each attempt that was
//     answered to a request that was answered so. Where an attempt has more
//     requests than one, the others are from processes that were killed before
//     they had recorded an outcome, or that were told that they came too late.
//   - What a process was told is recorded stayed as it was.
//   - Events are whole, and there once; also those with an idempotency key, which
//     several processes published. Those in a transaction of the host's are there
//     if and only if the transaction is.
//   - Deliveries with an ordering key went one after the other.
//   - Requests were signed by secrets that their endpoints had.
func (s *scene) check() Totals {
	s.Helper()
	e := s.gather()
	e.checkProcesses()
	e.checkEvents()
	keyed := map[string][]*store.Delivery{}
	for i := range e.deliveries {
		d := &e.deliveries[i]
		if e.checkDelivery(d) {
			key := fmt.Sprint(d.EndpointID, " ", d.OrderingKey)
			if d.OrderingKey != "" {
				keyed[key] = append(keyed[key], d)
			}
		}
	}
	for key, list := range keyed {
		e.checkOrder(key, list)
	}
	e.checkConfirmed()
	for _, text := range e.problems[:min(len(e.problems), 20)] {
		s.Error(text)
	}
	if len(e.problems) > 0 {
		s.Fatalf("%d problems. %s", len(e.problems), e.Totals)
	}
	return e.Totals
}

func (e *evidence) problem(format string, args ...any) {
	e.problems = append(e.problems, fmt.Sprintf(format, args...))
}

func (s *scene) gather() *evidence {
	s.Helper()
	e := &evidence{attempts: map[int64][]store.Attempt{}, requests: map[int64][]request{}}
	s.look(func(h *Handle, d *webhook.Dispatcher) {
		e.deliveries = s.deliveries(h)
		var err error
		for i := range e.deliveries {
			id := e.deliveries[i].ID
			e.attempts[id], err = h.Store.Attempts(s.Context(), workspace, id)
			s.must(err)
			e.Attempts += len(e.attempts[id])
		}
		e.endpoints, err = d.Endpoints(s.Context(), workspace, 0, 0)
		s.must(err)
		if h.InTx == nil {
			return
		}
		notes, err := h.Notes(s.Context())
		s.must(err)
		e.notes = map[string]bool{}
		for _, note := range notes {
			e.notes[note] = true
		}
	})
	e.Deliveries = len(e.deliveries)
	requests, err := readLines[request](s.receiver.log.file.Name())
	s.must(err)
	e.Requests = len(requests)
	for _, q := range requests {
		e.requests[q.Delivery] = append(e.requests[q.Delivery], q)
	}
	e.problems = append(e.problems, s.receiver.unknown...)
	for _, p := range s.processes {
		e.journals = append(e.journals, diary{
			process: p, sent: map[sending]int{}, recorded: map[sending]int{}, dropped: map[sending]int{},
			retrying: map[int64]int{}, retried: map[int64]int{},
		})
	}
	return e
}

// entries reads a process's journal.
func (d *diary) entries() []entry {
	list, err := readLines[entry](d.Journal)
	d.must(err)
	return list
}

// checkProcesses reads the journals, and whether anybody ended in a way that
// nobody meant.
func (e *evidence) checkProcesses() {
	rotated, rotating := map[int64]int{}, map[int64]int{}
	for i := range e.journals {
		p := &e.journals[i]
		if p.killed() {
			e.Kills++
		} else if p.err != nil {
			e.problem("process %d: %v\n%s", p.Process, p.err, p.said())
		}
		if said := p.said(); strings.Contains(said, "DATA RACE") || strings.Contains(said, "panic") {
			e.problem("process %d says:\n%s", p.Process, said)
		}
		for _, x := range p.entries() {
			at := sending{x.Delivery, x.Attempt}
			switch x.Did {
			case didSend:
				p.sent[at]++
			case didRecord:
				p.recorded[at] = x.Status
			case didDrop:
				p.dropped[at] = x.Status
				e.Dropped++
			case didConfirm:
				p.confirmed = append(p.confirmed, x)
			case didUndo:
				p.undone = append(p.undone, x.Marker)
			case didRetrying:
				p.retrying[x.Delivery]++
			case didRefuse:
				p.retrying[x.Delivery]--
			case didRetry:
				p.retried[x.Delivery]++
				e.Retries++
			case didRotating:
				rotating[x.Endpoint]++
			case didRotate:
				rotated[x.Endpoint]++
			case didConflict:
				rotating[x.Endpoint]--
			case didEncounter:
				e.problem("process %d: %s", p.Process, x.Error)
			}
		}
		for at := range p.sent {
			_, recorded := p.recorded[at]
			_, dropped := p.dropped[at]
			if p.killed() && !recorded && !dropped {
				e.InFlight++
			}
		}
	}
	for _, x := range e.endpoints {
		e.Rotations += x.Rotations
		if x.Rotations < rotated[x.ID] || x.Rotations > rotating[x.ID] {
			e.problem("endpoint %d was rotated %d times; %d are known and %d were tried", x.ID, x.Rotations, rotated[x.ID], rotating[x.ID])
		}
	}
}

// checkDelivery reports whether a delivery has come to its end.
func (e *evidence) checkDelivery(d *store.Delivery) bool {
	if d.Status == store.StatusPending {
		e.problem("delivery %d is pending: %+v", d.ID, *d)
		return false
	}
	e.checkBudgets(d)
	e.checkRequests(d)
	return true
}

// checkBudgets checks a delivery's attempts against its budget, which begins
// anew with each manual retry.
func (e *evidence) checkBudgets(d *store.Delivery) {
	attempts := e.attempts[d.ID]
	if len(attempts) != d.TotalAttempts || len(attempts) == 0 {
		e.problem("delivery %d counts %d attempts and logs %d", d.ID, d.TotalAttempts, len(attempts))
		return
	}
	budgets, used, last := 0, 0, store.StatusPending
	for i, a := range attempts {
		if a.Number != i+1 {
			e.problem("delivery %d: attempt %d has the number %d", d.ID, i+1, a.Number)
		}
		if last != store.StatusPending {
			used = 0
		}
		used++
		switch {
		case a.Status/100 == 2:
			last = store.StatusDelivered
		case used == d.Budget:
			last = store.StatusFailed
		default:
			last = store.StatusPending
			continue
		}
		budgets++
	}
	if last != d.Status || used != d.Attempts {
		e.problem("delivery %d is %s after %d attempts; its log says %s after %d", d.ID, d.Status, d.Attempts, last, used)
	}
	if d.Interruptions != 0 {
		e.problem("delivery %d has ended, with %d interruptions", d.ID, d.Interruptions)
	}
	least, most := e.retries(d.ID)
	if n := budgets - 1; n < least || n > most {
		e.problem("delivery %d had %d budgets; %d retries by hand are known and %d were tried", d.ID, budgets, least, most)
	}
}

// checkRequests checks a delivery's requests against its attempts.
func (e *evidence) checkRequests(d *store.Delivery) {
	attempts := e.attempts[d.ID]
	byAttempt := make([][]request, len(attempts)+1)
	for _, q := range e.requests[d.ID] {
		if q.Attempt < 1 || q.Attempt > len(attempts) {
			e.problem("request %d belongs to no attempt that is logged: %+v", q.Seq, q)
			continue
		}
		byAttempt[q.Attempt] = append(byAttempt[q.Attempt], q)
		if q.Secret < 0 || q.Previous >= 0 && q.Previous != q.Secret-1 || q.Previous < 0 && q.Secret > 0 {
			e.problem("request %d is not signed as it should be: %+v", q.Seq, q)
		}
	}
	for i, a := range attempts {
		requests := byAttempt[a.Number]
		at := sending{d.ID, a.Number}
		if len(requests) == 0 {
			e.Unsent++
		}
		if a.Status != 0 && !slices.ContainsFunc(requests, func(q request) bool { return q.Status == a.Status }) {
			e.problem("delivery %d: attempt %d was answered with %d, which the receiver does not know: %+v", d.ID, i+1, a.Status, requests)
		}
		for j := range e.journals {
			p := &e.journals[j]
			if status, ok := p.recorded[at]; ok && status != a.Status {
				e.problem("process %d was told that %d is recorded for attempt %d of delivery %d; it is %d", p.Process, status, a.Number, d.ID, a.Status)
			}
		}
		e.Interrupted += max(len(requests)-1, 0)
		e.checkRepeats(at, requests)
	}
}

// checkRepeats asks that of an attempt's requests all but one were interrupted.
func (e *evidence) checkRepeats(at sending, requests []request) {
	from, finished := map[int]bool{}, 0
	for _, q := range requests {
		if from[q.Process] {
			e.problem("process %d made attempt %d of delivery %d twice", q.Process, at.attempt, at.delivery)
		}
		from[q.Process] = true
		p := &e.journals[q.Process-1]
		if p.sent[at] == 0 {
			e.problem("process %d did not sign request %d: %+v", p.Process, q.Seq, q)
		}
		_, recorded := p.recorded[at]
		_, dropped := p.dropped[at]
		switch {
		case recorded:
			finished++
		case dropped || p.killed():
		default:
			e.problem("process %d lived, and forgot about request %d: %+v", p.Process, q.Seq, q)
		}
	}
	if finished > 1 {
		e.problem("%d processes recorded attempt %d of delivery %d", finished, at.attempt, at.delivery)
	}
}

// retries returns how many manual retries of a delivery are known to have
// happened, and how many may have.
func (e *evidence) retries(id int64) (least, most int) {
	for i := range e.journals {
		p := &e.journals[i]
		least += p.retried[id]
		most += p.retrying[id]
	}
	return least, most
}

// checkOrder checks the deliveries of one ordering key and endpoint. (Nobody
// retries those by hand.)
func (e *evidence) checkOrder(key string, list []*store.Delivery) {
	slices.SortFunc(list, func(a, b *store.Delivery) int { return int(a.ID - b.ID) })
	last := 0
	for _, d := range list {
		for _, q := range e.requests[d.ID] {
			if q.Seq < last {
				e.problem("endpoint and ordering key %s: request %d for delivery %d came before one for an earlier delivery", key, q.Seq, d.ID)
			}
		}
		for _, q := range e.requests[d.ID] {
			last = max(last, q.Seq)
		}
	}
}

// checkEvents checks that events are whole and there once, by their markers.
func (e *evidence) checkEvents() {
	events, size := map[string]string{}, map[string]int{} // by marker, by event
	transactions := map[string]bool{}                     // the markers of those in one
	for i := range e.deliveries {
		d := &e.deliveries[i]
		data := dataOf(d)
		if known, ok := events[data.Marker]; ok && known != d.EventID {
			e.problem("%s was published twice, as %s and %s", data.Marker, known, d.EventID)
		}
		events[data.Marker] = d.EventID
		if data.How == publishTx {
			transactions[data.Marker] = true
		}
		size[d.EventID]++
	}
	e.Events = len(size)
	for event, n := range size {
		if n != len(e.endpoints) {
			e.problem("event %s has %d deliveries to %d endpoints", event, n, len(e.endpoints))
		}
	}
	for marker := range events {
		if batch, _, ok := strings.Cut(marker, partOf); ok {
			for i := range batchSize {
				if _, ok := events[part(batch, i)]; !ok {
					e.problem("%s is there and %s is not", marker, part(batch, i))
				}
			}
		}
	}
	e.checkTransactions(transactions)
}

// checkTransactions compares what was published in transactions of the host's
// with what these did beside it.
func (e *evidence) checkTransactions(events map[string]bool) {
	for note := range e.notes {
		if !events[note] {
			e.problem("transaction %s was committed, and its event is not there", note)
		}
	}
	for i := range e.journals {
		p := &e.journals[i]
		for _, marker := range p.undone {
			if events[marker] || e.notes[marker] {
				e.problem("transaction %s was rolled back, and its event is there", marker)
			}
		}
	}
	for marker := range events {
		if !e.notes[marker] {
			e.problem("the event of transaction %s is there, and the transaction is not", marker)
		}
	}
}

// checkConfirmed looks for what publishes confirmed.
func (e *evidence) checkConfirmed() {
	ended := map[int64]string{}
	for i := range e.deliveries {
		if e.deliveries[i].Status != store.StatusPending {
			ended[e.deliveries[i].ID] = e.deliveries[i].EventID
		}
	}
	for i := range e.journals {
		for _, x := range e.journals[i].confirmed {
			e.Confirmed++
			if len(x.IDs) != len(e.endpoints) {
				e.problem("the receipt of %s names %d deliveries", x.Marker, len(x.IDs))
			}
			for _, id := range x.IDs {
				if ended[id] != x.Event {
					e.problem("%s was confirmed, and its delivery %d did not come to its end", x.Marker, id)
					e.Lost++
				}
			}
		}
	}
}
