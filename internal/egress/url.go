package egress

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

const maxURL = 2048 // bytes

// A RuleError says which rule a URL or a header breaks. It never repeats what
// it was given, which may hold a credential.
type RuleError struct {
	Rule string // a whole phrase, fit for the endpoint's owner
}

func (e *RuleError) Error() string { return e.Rule }

// The rules for URLs, in the order in which they are checked.
const (
	ruleLength   = "the URL must not be empty or longer than 2048 bytes"
	ruleASCII    = "the URL must be ASCII: percent-encode the path and query, write an international host name in its xn-- form"
	ruleEncode   = "the URL must not contain white space, control characters or any of \" < > \\ ^ ` { | }: percent-encode them"
	ruleFragment = "the URL must not have a fragment (#)"
	ruleScheme   = "the URL must start with https://"
	ruleUserinfo = "the URL must not have a user name or password (@)"
	ruleNoHost   = "the URL must have a host"
	rulePort     = "the URL's port must be a number from 1 to 65535"
	ruleHost     = "the URL's host must be a host name, an IPv4 address or an IPv6 address in brackets"
	ruleNumeric  = "the URL's host ends in a number, so it must be an IPv4 address of four decimal numbers"
	ruleLocal    = "names below localhost are not allowed"
	rulePercent  = "a percent sign in the URL's path must be followed by two hexadecimal digits"
	ruleHTTP     = "the URL must start with https://; http:// is for the hosts localhost, 127.0.0.1 and [::1] only"
	ruleLoopback = "the URL's host is a loopback address, which Config.Egress.AllowLoopback must allow"
	ruleAddress  = "the URL's address is not a public one (Config.Egress.AllowPrefixes can allow it)"
)

// CheckURL reports whether raw may be an endpoint's URL under o, as a
// [*RuleError] that names the first broken rule. The normalized URL has its
// scheme and host in lower case; every other byte is kept.
//
// International host names are accepted in their ASCII form (xn--) only: the
// mapping from Unicode has changed between versions of the standard, and the
// form that is shown should be the form that is looked up. An underscore in a
// host name is accepted, as DNS and wildcard certificates accept it.
func CheckURL(raw string, o Options) (normalized string, err error) {
	normalized, _, err = checkURL(raw, &o)
	return normalized, err
}

// ParseURL checks raw like [CheckURL] and returns the normalized URL ready for
// a [Request]. It is sent as it is written: the request target on the wire
// equals the path and query of raw ("/" if there is no path).
func ParseURL(raw string, o Options) (*url.URL, error) {
	_, u, err := checkURL(raw, &o)
	return u, err
}

func checkURL(raw string, o *Options) (string, *url.URL, error) {
	if rule := checkText(raw); rule != "" {
		return "", nil, &RuleError{rule}
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	scheme = strings.ToLower(scheme)
	if !ok || scheme != "https" && scheme != "http" {
		return "", nil, &RuleError{ruleScheme}
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	if strings.Contains(authority, "@") {
		return "", nil, &RuleError{ruleUserinfo}
	}
	// The authority is checked before url.Parse sees it, because url.Parse
	// undoes percent-encoding in hosts.
	authority = strings.ToLower(authority)
	if rule := checkAuthority(scheme, authority, o); rule != "" {
		return "", nil, &RuleError{rule}
	}
	normalized := scheme + "://" + authority + tail
	u, err := url.Parse(normalized)
	if err != nil {
		return "", nil, &RuleError{rulePercent}
	}
	return normalized, u, nil
}

// checkTarget holds a parsed URL to the same rules, without allocating: Do
// does not take it on trust that a URL came from ParseURL.
func checkTarget(u *url.URL, o *Options) (rule string) {
	switch {
	case u == nil || u.Opaque != "" || u.Path != "" && u.Path[0] != '/':
		return ruleNoHost // not of the form scheme://host/path
	case u.Scheme != "https" && u.Scheme != "http":
		return ruleScheme
	case u.User != nil:
		return ruleUserinfo
	case u.Fragment != "":
		return ruleFragment
	}
	// net/url encodes the path itself but sends a query as it is.
	if rule := checkBytes(u.RawQuery); rule != "" {
		return rule
	}
	return checkAuthority(u.Scheme, u.Host, o)
}

func checkText(s string) (rule string) {
	if s == "" || len(s) > maxURL {
		return ruleLength
	}
	return checkBytes(s)
}

// checkBytes refuses what RFC 3986 §2 does not let a URL contain. Clients
// disagree on how to send such bytes, and net/url would re-encode a path that
// holds one as a whole. "[" and "]" pass: queries like a[]=1 are common.
func checkBytes(s string) (rule string) {
	for i := range len(s) {
		switch b := s[i]; {
		case b >= 0x80:
			return ruleASCII
		case b <= ' ' || b == 0x7f:
			return ruleEncode
		case b == '#':
			return ruleFragment
		case b == '"' || b == '<' || b == '>' || b == '\\' || b == '^' || b == '`' || b == '{' || b == '|' || b == '}':
			return ruleEncode
		}
	}
	return ""
}

// checkAuthority checks host and port, and the host under the scheme.
func checkAuthority(scheme, authority string, o *Options) (rule string) {
	host, addr, rule := splitAuthority(authority)
	if rule != "" {
		return rule
	}
	loopback := host == "localhost" || addr.IsValid() && isLoopback(addr.Unmap())
	if scheme == "http" && host != "localhost" && host != "127.0.0.1" && host != "::1" {
		return ruleHTTP
	}
	switch {
	case loopback && (scheme == "http" || host == "localhost") && !o.AllowLoopback:
		return ruleLoopback
	case !addr.IsValid() || o.allowed(addr):
		return ""
	case loopback:
		return ruleLoopback
	}
	return ruleAddress
}

// splitAuthority returns the host without brackets and port, and its address
// if it is a literal one.
func splitAuthority(authority string) (host string, addr netip.Addr, rule string) {
	var port string
	var hasPort bool
	if strings.HasPrefix(authority, "[") {
		end := strings.IndexByte(authority, ']')
		if end < 0 {
			return "", addr, ruleHost
		}
		host = authority[1:end]
		if after := authority[end+1:]; after != "" {
			if after[0] != ':' {
				return "", addr, ruleHost
			}
			port, hasPort = after[1:], true
		}
		var err error
		if addr, err = netip.ParseAddr(host); err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", addr, ruleHost
		}
	} else {
		host, port, hasPort = strings.Cut(authority, ":")
		if addr, rule = checkHost(host); rule != "" {
			return "", addr, rule
		}
	}
	if hasPort && !validPort(port) {
		return "", addr, rulePort
	}
	return host, addr, ""
}

func validPort(port string) bool {
	if port == "" || port[0] == '0' || len(port) > 5 {
		return false
	}
	for i := range len(port) {
		if port[i] < '0' || port[i] > '9' {
			return false
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// checkHost checks a host that is not in brackets: a canonical IPv4 address or
// a name of RFC 1123 §2.1 labels, underscores let in, no trailing dot.
func checkHost(host string) (addr netip.Addr, rule string) {
	if host == "" {
		return addr, ruleNoHost
	}
	if len(host) > 253 {
		return addr, ruleHost
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	if endsInNumber(last) {
		// C resolvers read 127.1, 0x7f000001, 0177.0.0.1 and 2130706433 as
		// addresses, so nothing that looks like them counts as a name.
		if addr, err := netip.ParseAddr(host); err == nil && addr.Is4() {
			return addr, ""
		}
		return addr, ruleNumeric
	}
	for start := 0; start <= len(host); {
		label := host[start:]
		if dot := strings.IndexByte(label, '.'); dot >= 0 {
			label = label[:dot]
		}
		if !validLabel(label) {
			return addr, ruleHost
		}
		start += len(label) + 1
	}
	if strings.HasSuffix(host, ".localhost") { // RFC 6761 §6.3
		return addr, ruleLocal
	}
	return addr, ""
}

// endsInNumber follows the URL standard's "ends in a number" (WHATWG URL §3.5)
// for a host's last label.
func endsInNumber(label string) bool {
	if label == "" {
		return false
	}
	digits, hex := label, false
	if len(label) >= 2 && label[0] == '0' && label[1]|0x20 == 'x' {
		digits, hex = label[2:], true
	}
	for i := range len(digits) {
		b := digits[i] | 0x20
		if (digits[i] < '0' || digits[i] > '9') && (!hex || b < 'a' || b > 'f') {
			return false
		}
	}
	return true
}

func validLabel(label string) bool {
	if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for i := range len(label) {
		b := label[i]
		letter := b|0x20 >= 'a' && b|0x20 <= 'z'
		if !letter && (b < '0' || b > '9') && b != '-' && b != '_' {
			return false
		}
	}
	return true
}
