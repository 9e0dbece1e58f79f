package egress

import (
	"fmt"
	"strings"
)

const (
	maxHeaders     = 32
	maxHeaderName  = 128     // bytes
	maxHeaderBytes = 4 << 10 // of one header, name and value
)

// reserved are the headers an endpoint may not set, in lower case:
//   - what this module writes itself;
//   - what describes or frames the body, or belongs to the connection
//     (RFC 9110 §7.6.1);
//   - Idempotency-Key and Expect, to which net/http reacts, the first by
//     repeating a POST on its own;
//   - what says where a request comes from: a receiver that trusts the host's
//     network must not be told stories by a stranger;
//   - cookies, which are a browser's: credentials go into Authorization.
var reserved = map[string]bool{
	"accept-encoding":     true,
	"connection":          true,
	"cookie":              true,
	"cookie2":             true,
	"date":                true,
	"expect":              true,
	"forwarded":           true,
	"forwarded-for":       true,
	"host":                true,
	"http2-settings":      true,
	"idempotency-key":     true,
	"keep-alive":          true,
	"metadata":            true, // a cloud's, asked for by those that may reach it
	"metadata-flavor":     true,
	"te":                  true,
	"trailer":             true,
	"transfer-encoding":   true,
	"true-client-ip":      true,
	"upgrade":             true,
	"user-agent":          true,
	"via":                 true,
	"x-client-ip":         true,
	"x-cluster-client-ip": true,
	"x-forwarded":         true,
	"x-host":              true,
	"x-idempotency-key":   true,
	"x-real-ip":           true,
}

var reservedPrefixes = [...]string{
	"cf-", "content-", "elido-", "fastly-", "fly-", "proxy-", "webhook-", "x-elido-", "x-envoy-", "x-forwarded-",
	"x-original-", "x-rewrite-", "x-webhook-",
}

// CheckHeaders reports whether h may be an endpoint's extra headers: at most
// 32 of at most 4 KiB, their names tokens (RFC 9110 §5.6.2) and not reserved,
// their values visible ASCII with spaces only between. The error is a
// [*RuleError] that names the first broken header in order of name, and never
// its value.
func CheckHeaders(h map[string]string) error {
	if len(h) > maxHeaders {
		return &RuleError{fmt.Sprintf("there must not be more than %d extra headers", maxHeaders)}
	}
	var first, rule string
	lower := make(map[string]bool, len(h))
	for name, value := range h {
		broken := checkHeader(name, value)
		key := strings.ToLower(name)
		if broken == "" && lower[key] {
			broken = "is given twice, in different letter case"
			name = key // so that the choice does not depend on the map's order
		}
		lower[key] = true
		if broken != "" && (rule == "" || name < first) {
			first, rule = name, broken
		}
	}
	switch {
	case rule == "":
		return nil
	case !isToken(first) || len(first) > maxHeaderName:
		return &RuleError{"a header's name must be of letters, digits and !#$%&'*+-.^_`|~, at most 128 bytes"}
	}
	return &RuleError{"the header " + first + " " + rule}
}

func checkHeader(name, value string) (broken string) {
	switch {
	case !isToken(name) || len(name) > maxHeaderName:
		return "has a name that is not valid"
	case isReserved(name):
		return "is reserved"
	case len(name)+len(value) > maxHeaderBytes:
		return "is longer than 4096 bytes"
	case strings.Trim(value, " ") != value:
		return "must not have a value that starts or ends with a space"
	}
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return "must have a value of visible ASCII characters"
		}
	}
	return ""
}

// isReserved takes an underscore for a hyphen, as receivers behind CGI and its
// heirs do: to them X_Forwarded_For is X-Forwarded-For.
func isReserved(name string) bool {
	name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	if reserved[name] {
		return true
	}
	for _, prefix := range reservedPrefixes {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func isToken(s string) bool {
	for i := range len(s) {
		b := s[i]
		letter := b|0x20 >= 'a' && b|0x20 <= 'z'
		if !letter && (b < '0' || b > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(b)) {
			return false
		}
	}
	return s != ""
}
