package postgresstore

import "github.com/elido-app/webhook/store"

// Rows to insert, column by column, as unnest takes them.

type eventRows struct {
	seqs       []int64
	ids        []string
	workspaces []int64
	types      []string
	occurred   []*int64
	deliveries []string
	payloads   [][]byte
	traces     [][]byte
}

func (r *eventRows) add(seq int64, ev *store.NewEvent, deliveries string) {
	r.seqs, r.ids, r.workspaces = append(r.seqs, seq), append(r.ids, ev.ID), append(r.workspaces, ev.WorkspaceID)
	r.types, r.occurred = append(r.types, ev.Type), append(r.occurred, moment(ev.OccurredAt))
	r.deliveries, r.payloads = append(r.deliveries, deliveries), append(r.payloads, ev.Payload)
	r.traces = append(r.traces, orderingKey(ev.Trace))
}

type deliveryRows struct {
	ids, endpoints, seqs, budgets []int64
	states                        []int16
	keys                          [][]byte
	turns                         []*int32
}

func (r *deliveryRows) add(id, endpointID, seq int64, state int16, budget int, key string) {
	r.ids, r.endpoints, r.seqs = append(r.ids, id), append(r.endpoints, endpointID), append(r.seqs, seq)
	r.states, r.budgets = append(r.states, state), append(r.budgets, int64(budget))
	var turn *int32
	if key != "" {
		n := turnSlot(endpointID, key)
		turn = &n
	}
	r.keys, r.turns = append(r.keys, orderingKey(key)), append(r.turns, turn)
}

// keyRows are idempotency keys with the deliveries of their events.
type keyRows struct {
	workspaces []int64
	keys       [][]byte
	deliveries []string
}

func (r *keyRows) add(ev *store.NewEvent, deliveries string) {
	r.workspaces, r.keys = append(r.workspaces, ev.WorkspaceID), append(r.keys, []byte(ev.IdempotencyKey))
	r.deliveries = append(r.deliveries, deliveries)
}

// outcomeRows are outcomes of attempts.
type outcomeRows struct {
	ids, tokens, endpoints, latencies  []int64
	states                             []int16
	statuses                           []int32
	dues, started                      []*int64
	errs, messages, headers, responses [][]byte
	cuts                               []bool
}

func (r *outcomeRows) add(o *store.Outcome) {
	a, due := &o.Attempt, (*int64)(nil)
	if state(o.Status) == stateReady {
		due = moment(o.NextAttemptAt)
	}
	r.ids, r.tokens, r.endpoints = append(r.ids, o.DeliveryID), append(r.tokens, o.Token), append(r.endpoints, o.EndpointID)
	r.states, r.dues, r.started = append(r.states, state(o.Status)), append(r.dues, due), append(r.started, moment(a.StartedAt))
	r.statuses, r.latencies = append(r.statuses, int32(a.Status)), append(r.latencies, a.Latency.Microseconds())
	r.errs, r.messages = append(r.errs, a.Error), append(r.messages, o.Message)
	r.headers, r.responses = append(r.headers, document(a.Headers)), append(r.responses, a.Response)
	r.cuts = append(r.cuts, a.ResponseCut)
}

func (r *outcomeRows) args(now int64) []any {
	return []any{
		r.ids, r.tokens, r.endpoints, r.states, r.dues, r.statuses, r.latencies, r.errs, r.messages, r.started,
		r.headers, r.responses, r.cuts, now,
	}
}
