package webhook

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/elido-app/webhook/internal/sig"
)

// Signer says how requests are signed and how secrets are replaced. The zero
// value is Elido's: scheme [ElidoV1] and an overlap of 7 days.
type Signer struct {
	// Schemes all sign each request. Defaults to ElidoV1 alone.
	Schemes []Scheme

	// Overlap is how long the old secret also signs after a rotation. Defaults
	// to 7 days; negative means not at all.
	Overlap time.Duration

	// NoOverlapBefore is the one exception: an imported endpoint created before
	// this instant, whose secret was never replaced, has no overlap the first
	// time. Defaults to 2026-09-22T00:00:00Z.
	NoOverlapBefore time.Time
}

// Scheme is one way to sign requests. Implementations must be safe for
// concurrent use.
type Scheme interface {
	// Prepare returns what signs with an endpoint's secrets; previous is empty
	// unless there is an overlap. It is called once for each state of an
	// endpoint, and before a secret is accepted: an error refuses the secret,
	// and must not contain it.
	Prepare(current, previous Secret) (SignFunc, error)
}

// SignFunc sets a scheme's headers for one attempt. Keys of h must be in
// canonical form. Headers are kept out of the delivery log whose name contains
// signature, auth, token, secret, password, key or cookie.
type SignFunc func(h http.Header, m Message)

// Message is what a request is signed over.
type Message struct {
	DeliveryID int64
	EventID    string // "evt_…"
	EventType  string
	Attempt    int       // number of the attempt, from 1, on through manual retries
	Time       time.Time // when this attempt is signed; schemes use whole Unix seconds
	Body       []byte
	Overlap    bool // the previous secret signs as well
}

// The schemes a host picks from.
var (
	// ElidoV1 signs timestamp "." body with HMAC-SHA256 under the whole secret:
	// X-Elido-Signature (and X-Webhook-Signature, the same), in an overlap
	// X-Elido-Signature-Previous, and X-Webhook-Timestamp.
	ElidoV1 Scheme = elidoV1{}

	// ElidoTimed is Elido-Signature: t=<unix>,v1=<hex>, in an overlap with a
	// second v1, with Elido-Webhook-Id (the event id) and Elido-Delivery-Attempt.
	// The header is laid out like Stripe's.
	ElidoTimed Scheme = elidoTimed{}

	// StandardWebhooks is webhook-id (the delivery id), webhook-timestamp and
	// webhook-signature as https://www.standardwebhooks.com specifies them. The
	// key is what the secret encodes in base64 after "whsec_"; a secret that
	// does not is refused.
	StandardWebhooks Scheme = standardWebhooks{}
)

const defaultOverlap = 7 * 24 * time.Hour

var defaultNoOverlapBefore = time.Date(2026, 9, 22, 0, 0, 0, 0, time.UTC)

func (s Signer) withDefaults() (Signer, error) {
	if len(s.Schemes) == 0 {
		s.Schemes = []Scheme{ElidoV1}
	}
	for _, scheme := range s.Schemes {
		if scheme == nil {
			return s, &InvalidError{Field: "Signer.Schemes", Rule: "must not contain nil"}
		}
	}
	switch {
	case s.Overlap == 0:
		s.Overlap = defaultOverlap
	case s.Overlap > 365*24*time.Hour:
		return s, &InvalidError{Field: "Signer.Overlap", Rule: "must be at most 365 days"}
	}
	if s.NoOverlapBefore.IsZero() {
		s.NoOverlapBefore = defaultNoOverlapBefore
	}
	return s, nil
}

// overlapUntil returns when the secret that an endpoint has now stops to sign
// if it is replaced at an instant; zero means at once.
func (s Signer) overlapUntil(e Endpoint, now time.Time) time.Time {
	if s.Overlap < 0 || (e.Imported && e.Rotations == 0 && e.CreatedAt.Before(s.NoOverlapBefore)) {
		return time.Time{}
	}
	return now.Add(s.Overlap)
}

// checkSecret returns an *InvalidError unless every scheme can use the secret.
func (s Signer) checkSecret(field string, secret Secret) error {
	err := sig.CheckSecret(secret.Reveal())
	for i := 0; err == nil && i < len(s.Schemes); i++ {
		_, err = s.prepareScheme(i, secret, Secret{})
	}
	if err != nil {
		return &InvalidError{Field: field, Rule: err.Error()}
	}
	return nil
}

// prepare returns what signs a request under all schemes.
func (s Signer) prepare(current, previous Secret) ([]SignFunc, error) {
	signs := make([]SignFunc, len(s.Schemes))
	for i := range s.Schemes {
		var err error
		if signs[i], err = s.prepareScheme(i, current, previous); err != nil {
			return nil, err
		}
	}
	return signs, nil
}

// prepareScheme contains a panic of a host's scheme.
func (s Signer) prepareScheme(i int, current, previous Secret) (sign SignFunc, err error) {
	defer func() {
		if recover() != nil { // the value may hold the secret
			err = errors.New("the signature scheme panicked")
		}
	}()
	sign, err = s.Schemes[i].Prepare(current, previous)
	switch {
	case err != nil && (holds(err, current) || holds(err, previous)):
		err = errors.New("the signature scheme refuses the secret")
	case err == nil && sign == nil:
		err = errors.New("the signature scheme returned nothing to sign with")
	}
	return sign, err
}

// holds reports whether an error gives a secret away, or the half of it that
// is behind a prefix.
func holds(err error, s Secret) bool {
	secret := s.Reveal()
	return secret != "" && strings.Contains(err.Error(), secret[len(secret)/2:])
}

// keys makes the keys of an endpoint's secrets; the second is nil without a
// previous secret.
func keys(current, previous Secret, newKey func(string) (*sig.Key, error)) (now, before *sig.Key, err error) {
	if now, err = newKey(current.Reveal()); err != nil || previous.IsZero() {
		return now, nil, err
	}
	before, err = newKey(previous.Reveal())
	return now, before, err
}

// macs returns the MAC of the current key and, in an overlap, of the previous.
func macs(now, before *sig.Key, m *Message, mac func(*sig.Key) sig.MAC) []sig.MAC {
	list := append(make([]sig.MAC, 0, 2), mac(now))
	if m.Overlap && before != nil {
		list = append(list, mac(before))
	}
	return list
}

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

type elidoV1 struct{}

func (elidoV1) Prepare(current, previous Secret) (SignFunc, error) {
	now, before, err := keys(current, previous, sig.NewKey)
	if err != nil {
		return nil, err
	}
	return func(h http.Header, m Message) {
		timestamp := unix(m.Time)
		var space [sig.ElidoLen]byte
		values := [2]string{string(sig.AppendElido(space[:0], now.Elido(timestamp, m.Body))), timestamp}
		h[sig.HeaderSignature], h[sig.HeaderSignatureAlias] = values[0:1:1], values[0:1:1]
		h[sig.HeaderTimestamp] = values[1:2:2]
		if m.Overlap && before != nil {
			h[sig.HeaderSignaturePrevious] = []string{string(sig.AppendElido(nil, before.Elido(timestamp, m.Body)))}
		}
	}, nil
}

type elidoTimed struct{}

func (elidoTimed) Prepare(current, previous Secret) (SignFunc, error) {
	now, before, err := keys(current, previous, sig.NewKey)
	if err != nil {
		return nil, err
	}
	return func(h http.Header, m Message) {
		timestamp := unix(m.Time)
		list := macs(now, before, &m, func(k *sig.Key) sig.MAC { return k.Elido(timestamp, m.Body) })
		h[sig.HeaderTimed] = []string{string(sig.AppendTimed(nil, timestamp, list...))}
		h[sig.HeaderEventID] = []string{m.EventID}
		h[sig.HeaderAttempt] = []string{strconv.Itoa(m.Attempt)}
	}, nil
}

type standardWebhooks struct{}

func (standardWebhooks) Prepare(current, previous Secret) (SignFunc, error) {
	now, before, err := keys(current, previous, sig.NewStandardKey)
	if err != nil {
		return nil, err
	}
	return func(h http.Header, m Message) {
		timestamp, id := unix(m.Time), strconv.FormatInt(m.DeliveryID, 10)
		list := macs(now, before, &m, func(k *sig.Key) sig.MAC { return k.Standard(id, timestamp, m.Body) })
		h[sig.HeaderStandardID] = []string{id}
		h[sig.HeaderStandardTimestamp] = []string{timestamp}
		h[sig.HeaderStandardSignature] = []string{string(sig.AppendStandard(nil, list...))}
	}, nil
}
