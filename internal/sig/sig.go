// Package sig holds the signature schemes that the sender and package verify
// share: keys, message authentication codes, and the text of the headers that
// carry them.
//
// All three schemes are HMAC-SHA256 (RFC 2104, FIPS 198-1) and differ in what
// they sign and in how they write it down:
//
//	Elido v1           X-Elido-Signature: v1=<hex>        over timestamp "." body
//	Elido t=,v1=       Elido-Signature: t=<unix>,v1=<hex> over timestamp "." body
//	Standard Webhooks  webhook-signature: v1,<base64>     over id "." timestamp "." body
//
// The second is laid out like Stripe's header. The third is the one of
// https://www.standardwebhooks.com, and its key is the decoded secret; the two
// of Elido take the secret's text as it is.
package sig

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
)

// The headers of a signed request, in the spelling of http.CanonicalHeaderKey,
// so that they can index an http.Header.
const (
	// Elido v1. The alias repeats the signature under an older name; the
	// previous one is made with the secret that is being replaced.
	HeaderSignature         = "X-Elido-Signature"
	HeaderSignatureAlias    = "X-Webhook-Signature"
	HeaderSignaturePrevious = "X-Elido-Signature-Previous"
	HeaderTimestamp         = "X-Webhook-Timestamp"

	// Elido t=,v1=.
	HeaderTimed   = "Elido-Signature"
	HeaderEventID = "Elido-Webhook-Id"
	HeaderAttempt = "Elido-Delivery-Attempt"

	// Standard Webhooks.
	HeaderStandardID        = "Webhook-Id"
	HeaderStandardTimestamp = "Webhook-Timestamp"
	HeaderStandardSignature = "Webhook-Signature"

	// With every signed request, and covered by none of the signatures.
	HeaderEvent    = "X-Webhook-Event"
	HeaderDelivery = "X-Webhook-Delivery"
)

// MAC is what HMAC-SHA256 returns. It is made to be published.
type MAC [sha256.Size]byte

// Equal compares in constant time.
func (m *MAC) Equal(o *MAC) bool {
	return subtle.ConstantTimeCompare(m[:], o[:]) == 1
}

const (
	hexLen    = 2 * sha256.Size
	base64Len = (sha256.Size + 2) / 3 * 4
)

// Sizes of header values, for callers that bring the buffer.
const (
	// ElidoLen is what AppendElido appends.
	ElidoLen = len("v1=") + hexLen
	// MaxTimestampLen is the length of the longest timestamp ParseTimestamp
	// accepts.
	MaxTimestampLen = 12
)

// AppendElido appends the value of HeaderSignature and its companions:
// "v1=" and 64 lower-case hex digits.
func AppendElido(dst []byte, m MAC) []byte {
	return hex.AppendEncode(append(dst, "v1="...), m[:])
}

// AppendTimed appends the value of HeaderTimed: "t=<timestamp>", then
// ",v1=<hex>" for each MAC. In an overlap the new secret's comes first.
func AppendTimed(dst []byte, timestamp string, macs ...MAC) []byte {
	dst = append(append(dst, "t="...), timestamp...)
	for i := range macs {
		dst = hex.AppendEncode(append(dst, ",v1="...), macs[i][:])
	}
	return dst
}

// AppendStandard appends the value of HeaderStandardSignature: "v1,<base64>"
// for each MAC, with a space between two. In an overlap the new secret's comes
// first.
func AppendStandard(dst []byte, macs ...MAC) []byte {
	for i := range macs {
		if i > 0 {
			dst = append(dst, ' ')
		}
		dst = base64.StdEncoding.AppendEncode(append(dst, "v1,"...), macs[i][:])
	}
	return dst
}

// DecodeHex reads 64 lower-case hex digits into m and reports whether that is
// what s was. m is undefined otherwise.
func DecodeHex(m *MAC, s string) bool {
	if len(s) != hexLen {
		return false
	}
	var invalid byte
	for i := range m {
		hi, lo := hexDigit[s[2*i]], hexDigit[s[2*i+1]]
		invalid |= hi | lo
		m[i] = hi<<4 | lo&0xf
	}
	return invalid < 0x10
}

// hexDigit gives the value of a lower-case hex digit, 0xff for anything else.
// encoding/hex would take upper case too, and then one signature has many texts.
var hexDigit = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i, c := range []byte("0123456789abcdef") {
		t[c] = byte(i)
	}
	return t
}()

// strictBase64 refuses stray bits after the last digit; see hexDigit.
var strictBase64 = base64.StdEncoding.Strict()

// DecodeBase64 reads 44 characters of padded standard base64 (RFC 4648,
// section 4) into m and reports whether that is what s was. m is undefined
// otherwise.
func DecodeBase64(m *MAC, s string) bool {
	if len(s) != base64Len {
		return false
	}
	var text [base64Len]byte
	copy(text[:], s)
	// One byte more than a MAC has: Decode may write whole groups of three.
	var raw [base64Len / 4 * 3]byte
	n, err := strictBase64.Decode(raw[:], text[:])
	if err != nil || n != len(m) {
		return false
	}
	copy(m[:], raw[:])
	return true
}

// ErrTimestamp: not a Unix time in seconds, written in 1 to 12 digits without
// sign or leading zero.
var ErrTimestamp = errors.New("not a Unix time in plain digits")

// ParseTimestamp reads the seconds of a signature's timestamp. The grammar is
// ^[1-9][0-9]{0,11}$ and nothing more: a text that other parsers take for the
// same number ("+5", "05") is refused with ErrTimestamp.
func ParseTimestamp(s string) (int64, error) {
	if len(s) == 0 || len(s) > MaxTimestampLen || s[0] == '0' {
		return 0, ErrTimestamp
	}
	var n int64
	for i := range len(s) {
		c := s[i] - '0'
		if c > 9 {
			return 0, ErrTimestamp
		}
		n = n*10 + int64(c)
	}
	return n, nil
}
