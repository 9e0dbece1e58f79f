package memorystore

// heap is a binary heap whose members know their place, so that any of them
// can be moved or removed. index returns where a member keeps its place plus
// one; zero means it is in no heap.
type heap[T any] struct {
	items []T
	less  func(a, b T) bool
	index func(T) *int
}

func (h *heap[T]) len() int { return len(h.items) }

// first returns the least member. There must be one.
func (h *heap[T]) first() T { return h.items[0] }

// push adds a member, or moves it to its place if it changed.
func (h *heap[T]) push(v T) {
	i := *h.index(v) - 1
	if i < 0 {
		i = len(h.items)
		h.items = append(h.items, v)
	}
	if !h.down(i) {
		h.up(i)
	}
}

// remove takes a member out, if it is in.
func (h *heap[T]) remove(v T) {
	i := *h.index(v) - 1
	if i < 0 {
		return
	}
	*h.index(v) = 0
	last := len(h.items) - 1
	moved := h.items[last]
	var none T
	h.items[last] = none
	h.items = h.items[:last]
	if i == last {
		return
	}
	h.put(i, moved)
	if !h.down(i) {
		h.up(i)
	}
}

func (h *heap[T]) put(i int, v T) {
	h.items[i] = v
	*h.index(v) = i + 1
}

func (h *heap[T]) up(i int) {
	v := h.items[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(v, h.items[parent]) {
			break
		}
		h.put(i, h.items[parent])
		i = parent
	}
	h.put(i, v)
}

// down reports whether the member moved.
func (h *heap[T]) down(i int) bool {
	v, start := h.items[i], i
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			break
		}
		if right := child + 1; right < len(h.items) && h.less(h.items[right], h.items[child]) {
			child = right
		}
		if !h.less(h.items[child], v) {
			break
		}
		h.put(i, h.items[child])
		i = child
	}
	h.put(i, v)
	return i != start
}

// each calls f for members from the least on, in no particular order, and leaves
// out those above one for which f returned false.
func (h *heap[T]) each(f func(T) bool) { h.below(0, f) }

func (h *heap[T]) below(i int, f func(T) bool) {
	if i < len(h.items) && f(h.items[i]) {
		h.below(2*i+1, f)
		h.below(2*i+2, f)
	}
}
