package verify

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/elido-app/webhook/internal/sig"
)

// A Scheme is a way to sign a request. Several are combined with |.
type Scheme uint8

// The schemes. Which one a sender uses is its setting; Elido's default is
// ElidoV1.
const (
	// ElidoV1 is X-Elido-Signature, or its alias X-Webhook-Signature, and
	// X-Elido-Signature-Previous while a secret is being replaced, each
	// "v1=" and hex, with X-Webhook-Timestamp.
	ElidoV1 Scheme = 1 << iota

	// ElidoTimed is Elido-Signature: t=<unix>,v1=<hex>[,v1=<hex>…].
	ElidoTimed

	// StandardWebhooks is webhook-id, webhook-timestamp and
	// webhook-signature, as https://www.standardwebhooks.com has them. It is
	// the one scheme whose signature covers the delivery id. A secret that is
	// not base64 after "whsec_" cannot verify it.
	StandardWebhooks

	allSchemes = ElidoV1 | ElidoTimed | StandardWebhooks
)

const (
	// maxCandidates bounds the signatures of one request, all schemes and
	// versions together. A sender that signs with all three during an overlap
	// sends seven.
	maxCandidates = 8

	maxHeaderLen = 4 << 10

	// maxIDLen bounds ids that come in headers, and so the keys of a Seen.
	maxIDLen = 255
)

// claims is what the headers of a request say about its signatures, before
// anything is known to be true. It lives on the stack.
type claims struct {
	by    [3]claim
	count int

	macs [maxCandidates]sig.MAC
	used int // of macs
	seen int // signatures of any version, known or not

	// refused is the refusal that tells most, of the schemes that are present
	// and cannot be used.
	refused *refusal
}

// claim is what one scheme says: that one of macs[from:to] signs the body.
type claim struct {
	scheme    Scheme
	timestamp string // as received: that is what was signed
	unix      int64
	id        string // StandardWebhooks only
	from, to  int
}

// clock is the time of the request, in whole seconds as the headers have it.
type clock struct {
	now, tolerance int64
}

// read collects the claims of all schemes whose signature headers are present.
// It returns an error if there is nothing to verify.
func (c *claims) read(h http.Header, schemes Scheme, at clock) error {
	if schemes == 0 {
		schemes = allSchemes
	}
	// What may cost time or be understood in two ways is refused here, for
	// the whole request, whatever else is valid. The rest is each scheme's.
	if schemes&ElidoV1 != 0 {
		if r := c.readElidoV1(h, at); r != nil {
			return r
		}
	}
	if schemes&ElidoTimed != 0 {
		if r := c.readElidoTimed(h, at); r != nil {
			return r
		}
	}
	if schemes&StandardWebhooks != 0 {
		if r := c.readStandard(h, at); r != nil {
			return r
		}
	}
	switch {
	case c.count > 0:
		return nil
	case c.refused != nil:
		return c.refused
	}
	return &refusal{reason: ErrMissingHeader, detail: "no signature"}
}

// readElidoV1, readElidoTimed and readStandard return the refusal of a whole
// request; that of their scheme alone goes to c.refused.
func (c *claims) readElidoV1(h http.Header, at clock) *refusal {
	current, alias, previous := h[sig.HeaderSignature], h[sig.HeaderSignatureAlias], h[sig.HeaderSignaturePrevious]
	if len(current)+len(alias)+len(previous) == 0 {
		return nil
	}
	timestamp := h[sig.HeaderTimestamp]
	if r := cmp.Or(
		single(sig.HeaderSignature, current), single(sig.HeaderSignatureAlias, alias),
		single(sig.HeaderSignaturePrevious, previous), single(sig.HeaderTimestamp, timestamp),
	); r != nil {
		return r
	}
	if len(current) > 0 && len(alias) > 0 && alias[0] == current[0] {
		alias = nil // the same candidate
	}
	cl := c.begin(ElidoV1)
	if r := cmp.Or(
		c.readVersion1(sig.HeaderSignature, current), c.readVersion1(sig.HeaderSignatureAlias, alias),
		c.readVersion1(sig.HeaderSignaturePrevious, previous),
	); r != nil {
		return c.drop(cl, r)
	}
	if len(timestamp) == 0 {
		return c.drop(cl, missing(sig.HeaderTimestamp))
	}
	return c.add(cl, timestamp[0], sig.HeaderTimestamp, sig.HeaderSignature, at)
}

// readVersion1 reads a header of Elido v1 that holds one signature, if it is
// there and the version is known.
func (c *claims) readVersion1(name string, lines []string) *refusal {
	if len(lines) == 0 {
		return nil
	}
	c.seen++
	text, known := strings.CutPrefix(lines[0], "v1=")
	if !known {
		return nil
	}
	if !sig.DecodeHex(&c.macs[c.used], text) {
		return malformed(name, "not v1= and 64 lower-case hex digits")
	}
	c.used++
	return nil
}

func (c *claims) readElidoTimed(h http.Header, at clock) *refusal {
	lines := h[sig.HeaderTimed]
	if len(lines) == 0 {
		return nil
	}
	if r := single(sig.HeaderTimed, lines); r != nil {
		return r
	}
	cl := c.begin(ElidoTimed)
	var timestamp string
	var timed bool
	var bad *refusal
	for rest, more := lines[0], true; more; {
		var item string
		item, rest, more = strings.Cut(rest, ",")
		key, text, ok := strings.Cut(item, "=")
		if ok && key == "t" {
			if timed {
				bad = malformed(sig.HeaderTimed, "two timestamps")
			}
			timestamp, timed = text, true
			continue
		}
		if c.seen++; c.seen > maxCandidates {
			return tooMany(sig.HeaderTimed)
		}
		switch {
		case !ok:
			bad = malformed(sig.HeaderTimed, "an item is not key=value")
		case key != "v1":
		case sig.DecodeHex(&c.macs[c.used], text):
			c.used++
		default:
			bad = malformed(sig.HeaderTimed, "a v1 is not 64 lower-case hex digits")
		}
	}
	switch {
	case bad != nil:
		return c.drop(cl, bad)
	case !timed:
		return c.drop(cl, malformed(sig.HeaderTimed, "no timestamp"))
	}
	return c.add(cl, timestamp, sig.HeaderTimed, sig.HeaderTimed, at)
}

func (c *claims) readStandard(h http.Header, at clock) *refusal {
	lines := h[sig.HeaderStandardSignature]
	if len(lines) == 0 {
		return nil
	}
	timestamp, id := h[sig.HeaderStandardTimestamp], h[sig.HeaderStandardID]
	if r := cmp.Or(
		single(sig.HeaderStandardSignature, lines),
		single(sig.HeaderStandardTimestamp, timestamp), single(sig.HeaderStandardID, id),
	); r != nil {
		return r
	}
	cl := c.begin(StandardWebhooks)
	var bad *refusal
	for rest, more := lines[0], true; more; {
		var item string
		item, rest, more = strings.Cut(rest, " ")
		if c.seen++; c.seen > maxCandidates {
			return tooMany(sig.HeaderStandardSignature)
		}
		version, text, ok := strings.Cut(item, ",")
		switch {
		case !ok:
			bad = malformed(sig.HeaderStandardSignature, "an item is not version,signature")
		case version != "v1":
		case sig.DecodeBase64(&c.macs[c.used], text):
			c.used++
		default:
			bad = malformed(sig.HeaderStandardSignature, "a v1 is not the base64 of 32 bytes")
		}
	}
	switch {
	case bad != nil:
		return c.drop(cl, bad)
	case len(id) == 0:
		return c.drop(cl, missing(sig.HeaderStandardID))
	// Full stops separate what is signed. With one inside the id, the end of
	// the id could be passed off as the timestamp.
	case !isID(id[0]) || strings.Contains(id[0], "."):
		return c.drop(cl, malformed(sig.HeaderStandardID, "not an id"))
	case len(timestamp) == 0:
		return c.drop(cl, missing(sig.HeaderStandardTimestamp))
	}
	cl.id = id[0]
	return c.add(cl, timestamp[0], sig.HeaderStandardTimestamp, sig.HeaderStandardSignature, at)
}

// begin opens a claim, to be ended by add or drop. Both return nil, so that a
// scheme can end with them.
func (c *claims) begin(scheme Scheme) *claim {
	cl := &c.by[c.count]
	*cl = claim{scheme: scheme, from: c.used}
	return cl
}

// add completes a claim whose candidates are read.
func (c *claims) add(cl *claim, timestamp, timestampHeader, signatureHeader string, at clock) *refusal {
	if c.used == cl.from {
		return c.drop(cl, malformed(signatureHeader, "no signature of a known version"))
	}
	unix, err := sig.ParseTimestamp(timestamp)
	if err != nil {
		return c.drop(cl, malformed(timestampHeader, err.Error()))
	}
	switch age := at.now - unix; {
	case age > at.tolerance:
		return c.drop(cl, &refusal{reason: ErrStale, about: timestampHeader})
	case -age > at.tolerance:
		return c.drop(cl, &refusal{reason: ErrFuture, about: timestampHeader})
	}
	cl.timestamp, cl.unix, cl.to = timestamp, unix, c.used
	c.count++
	return nil
}

// drop forgets a claim and remembers why.
func (c *claims) drop(cl *claim, r *refusal) *refusal {
	c.used = cl.from
	if c.refused == nil || r.rank() > c.refused.rank() {
		c.refused = r
	}
	return nil
}

// single refuses a header that is there twice, since whoever reads the other
// line would verify something else, or is longer than any real one.
func single(name string, lines []string) *refusal {
	switch {
	case len(lines) > 1:
		return malformed(name, "more than one line")
	case len(lines) == 1 && len(lines[0]) > maxHeaderLen:
		return malformed(name, "too long")
	}
	return nil
}

// only returns the one line of a header, if there is any. name is canonical.
func only(h http.Header, name string) (text string, present bool, r *refusal) {
	lines := h[name]
	if r := single(name, lines); r != nil || len(lines) == 0 {
		return "", false, r
	}
	return lines[0], true, nil
}

func tooMany(header string) *refusal {
	return malformed(header, "too many signatures")
}

// isID reports whether s can be an id: visible ASCII, and not much of it.
func isID(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) > 0 && len(s) <= maxIDLen
}
