package memorystore

import (
	"iter"
	"slices"
)

// blockSize bounds what one insertion or removal moves.
const blockSize = 512

// ordered is a sorted set, cut into blocks. Adding at its end, which is the
// common case, costs next to nothing. Members must not be added or removed
// during iteration.
type ordered[T any] struct {
	blocks  [][]T // none is empty
	n       int
	compare func(a, b T) int
}

func (o *ordered[T]) len() int { return o.n }

// block returns the index of the block v belongs to: the last one that does
// not begin after it.
func (o *ordered[T]) block(v T) int {
	last := len(o.blocks) - 1
	if last <= 0 || o.compare(o.blocks[last][0], v) <= 0 {
		return max(last, 0)
	}
	i, found := slices.BinarySearchFunc(o.blocks, v, func(b []T, v T) int { return o.compare(b[0], v) })
	if !found {
		i--
	}
	return max(i, 0)
}

func (o *ordered[T]) insert(v T) {
	o.n++
	if len(o.blocks) == 0 {
		o.blocks = append(o.blocks, []T{v})
		return
	}
	i := o.block(v)
	b := o.blocks[i]
	if o.compare(b[len(b)-1], v) < 0 {
		if len(b) == blockSize && i == len(o.blocks)-1 {
			o.blocks = append(o.blocks, append(make([]T, 0, blockSize), v))
			return
		}
		b = append(b, v)
	} else {
		at, _ := slices.BinarySearchFunc(b, v, o.compare)
		b = slices.Insert(b, at, v)
	}
	if len(b) > blockSize {
		half := slices.Clone(b[len(b)/2:])
		clear(b[len(b)/2:])
		b = b[:len(b)/2]
		o.blocks = slices.Insert(o.blocks, i+1, half)
	}
	o.blocks[i] = b
}

// remove takes v out, if it is in.
func (o *ordered[T]) remove(v T) {
	if o.n == 0 {
		return
	}
	i := o.block(v)
	at, found := slices.BinarySearchFunc(o.blocks[i], v, o.compare)
	if !found {
		return
	}
	o.n--
	if len(o.blocks[i]) == 1 {
		o.blocks = slices.Delete(o.blocks, i, i+1)
		return
	}
	o.blocks[i] = slices.Delete(o.blocks[i], at, at+1)
}

// first returns the least member. There must be one.
func (o *ordered[T]) first() T { return o.blocks[0][0] }

// from iterates over the members from v on, upwards.
func (o *ordered[T]) from(v T) iter.Seq[T] {
	return func(yield func(T) bool) {
		if o.n == 0 {
			return
		}
		i := o.block(v)
		at, _ := slices.BinarySearchFunc(o.blocks[i], v, o.compare)
		for _, b := range o.blocks[i:] {
			for _, v := range b[at:] {
				if !yield(v) {
					return
				}
			}
			at = 0
		}
	}
}

// all iterates over all members, upwards.
func (o *ordered[T]) all() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, b := range o.blocks {
			for _, v := range b {
				if !yield(v) {
					return
				}
			}
		}
	}
}

// below iterates over the members less than v, downwards.
func (o *ordered[T]) below(v T) iter.Seq[T] {
	return func(yield func(T) bool) {
		if o.n == 0 {
			return
		}
		i := o.block(v)
		at, _ := slices.BinarySearchFunc(o.blocks[i], v, o.compare)
		for b := o.blocks[i][:at]; ; b = o.blocks[i] {
			for _, v := range slices.Backward(b) {
				if !yield(v) {
					return
				}
			}
			if i--; i < 0 {
				return
			}
		}
	}
}
