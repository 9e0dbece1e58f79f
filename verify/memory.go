package verify

import (
	"container/heap"
	"container/list"
	"context"
	"sync"
	"time"
)

// DefaultMax is how many keys a Memory holds by default: some 30 MB.
const DefaultMax = 100_000

// Memory is a [Seen] in this process, for one process. The zero Memory is
// ready for use. It starts no goroutine: keys whose time is over go when others
// come.
type Memory struct {
	// Max is how many keys are held at once, where a delivery takes one and,
	// for the length of the tolerance, another for its signature. When there
	// is no room, the key that was given longest ago is forgotten, so leave
	// ample room for all deliveries of a retry schedule. Set it before the
	// first use. Defaults to 100,000.
	Max int

	mu       sync.Mutex
	keys     map[string]*hold
	byExpiry expiries
	byAge    list.List // of *hold, oldest first
}

// hold is a key that somebody has.
type hold struct {
	key, holder string
	until       time.Time
	heapIndex   int
	age         *list.Element
}

// Hold is [Seen.Hold]. It returns no error.
func (m *Memory) Hold(_ context.Context, key, holder string, d time.Duration) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.expire(now)
	if h := m.keys[key]; h != nil && h.holder != holder {
		return h.holder, nil
	}
	m.put(key, holder, now.Add(d))
	return holder, nil
}

// Set is [Seen.Set]. It returns no error.
func (m *Memory) Set(_ context.Context, key, holder string, d time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.expire(now)
	m.put(key, holder, now.Add(d))
	return nil
}

// Free is [Seen.Free]. It returns no error.
func (m *Memory) Free(_ context.Context, key, holder string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.keys[key]; h != nil && h.holder == holder {
		m.forget(h)
	}
	return nil
}

// Len returns how many keys are held.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire(time.Now())
	return len(m.keys)
}

func (m *Memory) put(key, holder string, until time.Time) {
	if h := m.keys[key]; h != nil {
		h.holder, h.until = holder, until
		heap.Fix(&m.byExpiry, h.heapIndex)
		m.byAge.MoveToBack(h.age)
		return
	}
	limit := m.Max
	if limit <= 0 {
		limit = DefaultMax
	}
	for len(m.keys) >= limit {
		m.forget(m.byAge.Front().Value.(*hold))
	}
	if m.keys == nil {
		m.keys = make(map[string]*hold)
	}
	h := &hold{key: key, holder: holder, until: until}
	h.age = m.byAge.PushBack(h)
	heap.Push(&m.byExpiry, h)
	m.keys[key] = h
}

// expire forgets what is over. What ends at an instant is over at that instant.
func (m *Memory) expire(now time.Time) {
	for len(m.byExpiry) > 0 && !now.Before(m.byExpiry[0].until) {
		m.forget(m.byExpiry[0])
	}
}

func (m *Memory) forget(h *hold) {
	heap.Remove(&m.byExpiry, h.heapIndex)
	m.byAge.Remove(h.age)
	delete(m.keys, h.key)
}

// expiries is a heap of holds, the first to end at its top.
type expiries []*hold

func (e expiries) Len() int           { return len(e) }
func (e expiries) Less(i, j int) bool { return e[i].until.Before(e[j].until) }
func (e expiries) Swap(i, j int) {
	e[i], e[j] = e[j], e[i]
	e[i].heapIndex, e[j].heapIndex = i, j
}

func (e *expiries) Push(x any) {
	h := x.(*hold)
	h.heapIndex = len(*e)
	*e = append(*e, h)
}

func (e *expiries) Pop() any {
	last := len(*e) - 1
	h := (*e)[last]
	(*e)[last] = nil
	*e = (*e)[:last]
	return h
}
