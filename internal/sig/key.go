package sig

import (
	"crypto/sha256"
	"encoding"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"sync"
)

// A Key signs with one secret. It is made by NewKey or NewStandardKey, is safe
// for concurrent use, and signs without allocating. Whatever formats, logs or
// marshals a Key gets "[redacted]": what it holds is worth as much as the
// secret, and sits behind a func, out of reach of reflection.
type Key struct {
	pads func() *pads
}

// pads is SHA-256 having read the key's inner and outer pad, as its
// MarshalBinary writes it. FIPS 198-1, section 6, allows to compute these once
// for a key; it saves two of the blocks that every message would hash.
// crypto/hmac does the same inside each of its states, which would have to be
// pooled for each key; two pads take 216 bytes and all keys share one pool.
type pads struct {
	inner, outer []byte
}

// newKey prepares HMAC (RFC 2104, section 2) with that key.
func newKey(key []byte) *Key {
	var block [sha256.BlockSize]byte
	if len(key) > len(block) {
		sum := sha256.Sum256(key)
		key = sum[:]
	}
	absorb := func(pad byte) []byte {
		block = [sha256.BlockSize]byte{}
		copy(block[:], key)
		for i := range block {
			block[i] ^= pad
		}
		h := sha256.New()
		h.Write(block[:])
		// crypto/sha256 documents the interface, and it cannot fail.
		state, err := h.(encoding.BinaryMarshaler).MarshalBinary()
		if err != nil {
			panic(err)
		}
		return state
	}
	p := &pads{inner: absorb(0x36), outer: absorb(0x5c)}
	return &Key{pads: func() *pads { return p }}
}

// Elido returns the MAC of timestamp "." body. Both schemes of Elido carry it.
func (k *Key) Elido(timestamp string, body []byte) MAC {
	d := digests.Get().(*digest)
	d.prefix = append(append(d.prefix[:0], timestamp...), '.')
	m := d.sum(k, body)
	digests.Put(d)
	return m
}

// Standard returns the MAC of id "." timestamp "." body, as Standard Webhooks
// has it.
func (k *Key) Standard(id, timestamp string, body []byte) MAC {
	d := digests.Get().(*digest)
	d.prefix = append(append(d.prefix[:0], id...), '.')
	d.prefix = append(append(d.prefix, timestamp...), '.')
	m := d.sum(k, body)
	digests.Put(d)
	return m
}

// digest is a SHA-256 with the room it needs. Everything handed to a hash.Hash
// escapes, so what is not the caller's lives here, and is used again.
type digest struct {
	hash    hash.Hash
	restore func([]byte) error
	prefix  []byte
	mac     MAC
}

var digests = sync.Pool{New: func() any {
	h := sha256.New()
	return &digest{
		hash:    h,
		restore: h.(encoding.BinaryUnmarshaler).UnmarshalBinary,
		prefix:  make([]byte, 0, 64),
	}
}}

// sum returns the HMAC of d.prefix and body.
func (d *digest) sum(k *Key, body []byte) MAC {
	p := k.pads()
	d.resume(p.inner)
	d.hash.Write(d.prefix)
	d.hash.Write(body)
	d.hash.Sum(d.mac[:0])
	d.resume(p.outer)
	d.hash.Write(d.mac[:])
	d.hash.Sum(d.mac[:0])
	return d.mac
}

// resume goes on from a state that newKey stored.
func (d *digest) resume(state []byte) {
	if err := d.restore(state); err != nil {
		panic(err) // written by the same process: not for the caller to handle
	}
}

const redacted = "[redacted]"

// String returns "[redacted]".
func (Key) String() string { return redacted }

// GoString returns "[redacted]".
func (Key) GoString() string { return redacted }

// Format writes "[redacted]", whatever the verb.
func (Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// MarshalText returns "[redacted]"; JSON, XML and gob all go through it.
func (Key) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue returns "[redacted]".
func (Key) LogValue() slog.Value { return slog.StringValue(redacted) }
