package verify

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"github.com/elido-app/webhook/internal/sig"
)

// The defaults of a Verifier.
const (
	DefaultTolerance = 5 * time.Minute
	DefaultMaxBody   = 1 << 20
)

// A Verifier checks that requests come from whoever holds the secret. It is
// made by [New] and safe for concurrent use; set its fields before the first
// one. The zero Verifier refuses everything with [ErrNoSecret].
type Verifier struct {
	// Tolerance is how far the time of signing may be from now, both ways, in
	// whole seconds. Defaults to 5 minutes.
	Tolerance time.Duration

	// MaxBody is the longest body accepted, in bytes. Defaults to 1 MiB.
	MaxBody int64

	// Schemes are the schemes accepted. Defaults to all of them.
	Schemes Scheme

	// OnError, if set, is told of every request that the handler made by
	// [Verifier.Handler] answers with an error, except those that are no POST.
	// It is called before the answer is written, by many goroutines at once.
	OnError func(*http.Request, error)

	keys []key
}

// key is one secret, ready for each scheme.
type key struct {
	elido    *sig.Key
	standard *sig.Key // nil if the secret is not base64
}

// New makes a Verifier for an endpoint's secret: the "whsec_…" string that
// creating or rotating the endpoint returned. While a secret is being replaced,
// and where several endpoints share a receiver, give them all. An error says
// which of them breaks which rule (24 to 256 bytes, no NUL, no white space),
// not what it was.
func New(secrets ...string) (*Verifier, error) {
	if len(secrets) == 0 {
		return nil, ErrNoSecret
	}
	v := &Verifier{keys: make([]key, 0, len(secrets))}
	for i, s := range secrets {
		elido, err := sig.NewKey(s)
		if err != nil {
			return nil, fmt.Errorf("verify: secret %d of %d: %w", i+1, len(secrets), err)
		}
		standard, err := sig.NewStandardKey(s)
		if err != nil {
			standard = nil // a secret of somebody's own choice, for the other schemes
		}
		v.keys = append(v.keys, key{elido: elido, standard: standard})
	}
	return v, nil
}

// Verify returns nil if body, byte for byte as received, was signed with one of
// the secrets within the tolerance. header is as net/http parses it: names are
// canonical. Nothing is allocated for a request signed with [ElidoV1].
//
// Use [Verifier.Event] to have the body parsed as well, and [Verifier.Request]
// to have it read.
func (v *Verifier) Verify(header http.Header, body []byte) error {
	var c claims
	if err := v.read(&c, header); err != nil {
		return err
	}
	_, err := v.match(&c, header, body)
	return err
}

// Event is [Verifier.Verify] and the event that the request carries. The event
// keeps body.
func (v *Verifier) Event(header http.Header, body []byte) (Event, error) {
	var c claims
	if err := v.read(&c, header); err != nil {
		return Event{}, err
	}
	return v.event(&c, header, body)
}

// Request reads the body of r, at most MaxBody of it, and returns the event
// that it carries if it is signed as it should be. Headers are looked at first:
// what they rule out is not read.
func (v *Verifier) Request(r *http.Request) (Event, error) {
	var c claims
	if err := v.read(&c, r.Header); err != nil {
		return Event{}, err
	}
	body, err := v.readBody(r)
	if err != nil {
		return Event{}, err
	}
	return v.event(&c, r.Header, body)
}

// read collects what the headers claim.
func (v *Verifier) read(c *claims, header http.Header) error {
	if len(v.keys) == 0 {
		return ErrNoSecret
	}
	return c.read(header, v.Schemes, clock{
		now:       time.Now().Unix(),
		tolerance: int64(v.tolerance() / time.Second),
	})
}

func (v *Verifier) tolerance() time.Duration {
	if v.Tolerance == 0 {
		return DefaultTolerance
	}
	return v.Tolerance
}

func (v *Verifier) maxBody() int64 {
	if v.MaxBody == 0 {
		return DefaultMaxBody
	}
	return min(v.MaxBody, math.MaxInt64-1) // readBody asks for one more
}

// matched says which of the claims are true.
type matched struct {
	macs uint8 // bit i: macs[i] is right
	unix int64 // when it was signed
}

// match computes what the signatures should be. Each key meets each candidate
// before there is an answer, so the time it takes does not say which was right.
func (v *Verifier) match(c *claims, header http.Header, body []byte) (matched, error) {
	var m matched
	var signedID string
	for i := range c.count {
		cl := &c.by[i]
		before := m.macs
		for _, k := range v.keys {
			var want sig.MAC
			switch {
			case cl.scheme != StandardWebhooks:
				want = k.elido.Elido(cl.timestamp, body)
			case k.standard != nil:
				want = k.standard.Standard(cl.id, cl.timestamp, body)
			default:
				continue
			}
			for j := cl.from; j < cl.to; j++ {
				if c.macs[j].Equal(&want) {
					m.macs |= 1 << j
				}
			}
		}
		if m.macs != before {
			m.unix = max(m.unix, cl.unix)
			signedID = cl.id
		}
	}
	if m.macs == 0 {
		return matched{}, ErrSignature
	}
	if signedID != "" {
		// The one id that a signature covers must not be shadowed by one that
		// anybody could have added.
		delivery, present, r := only(header, sig.HeaderDelivery)
		if r != nil {
			return matched{}, r
		}
		if present && delivery != signedID {
			return matched{}, malformed(sig.HeaderDelivery, "not the signed "+sig.HeaderStandardID)
		}
	}
	return m, nil
}

// readBody reads all of the body, or none that is worth anything.
func (v *Verifier) readBody(r *http.Request) ([]byte, error) {
	limit := v.maxBody()
	if r.ContentLength > limit {
		return nil, ErrBodyTooLarge
	}
	if r.Body == nil {
		return nil, nil
	}
	// Room for what is announced, but no more than costs nothing to promise.
	var buf bytes.Buffer
	buf.Grow(int(min(max(r.ContentLength, 0), 64<<10)) + bytes.MinRead)
	n, err := buf.ReadFrom(io.LimitReader(r.Body, limit+1))
	var tooLarge *http.MaxBytesError
	switch {
	case n > limit || errors.As(err, &tooLarge):
		return nil, ErrBodyTooLarge
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errRead, err)
	}
	return buf.Bytes(), nil
}
