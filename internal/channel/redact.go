package channel

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// redacted takes the place of a credential.
const redacted = "[redacted]"

// redactor removes a channel's credentials from what a vendor answered, in
// whatever form a server that echoes requests may give them back. Credentials are
// of letters, digits, _ and -, which no escaping changes.
type redactor struct {
	forms []string
}

// shortest is how long a secret must be to be looked for: what is shorter would
// be found everywhere.
const shortest = 6

func newRedactor(secrets ...string) redactor {
	var r redactor
	for _, s := range secrets {
		if len(s) < shortest {
			continue
		}
		r.add(s)
		r.add(hex.EncodeToString([]byte(s)))
		r.add(strings.ToUpper(hex.EncodeToString([]byte(s))))
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			for before := range 3 {
				r.add(within(e, s, before))
			}
		}
	}
	return r
}

func (r *redactor) add(form string) {
	if len(form) >= shortest {
		r.forms = append(r.forms, form)
	}
}

// within returns what is sure to be in the base64 of a longer text that has s at
// an offset of before, modulo 3.
func within(e *base64.Encoding, s string, before int) string {
	encoded := e.EncodeToString(append(make([]byte, before), s...))
	start := [...]int{0, 2, 3}[before]
	end := len(encoded)
	if (before+len(s))%3 != 0 { // the last digit holds bits of what follows
		end--
	}
	return encoded[min(start, end):end]
}

// Redact returns text without the channel's credentials. A credential that the
// end of the text cuts short goes as well.
func (r redactor) Redact(b []byte) []byte {
	for _, form := range r.forms {
		b = bytes.ReplaceAll(b, []byte(form), []byte(redacted))
	}
	for _, form := range r.forms {
		for n := min(len(form)-1, len(b)); n >= shortest; n-- {
			if bytes.HasSuffix(b, []byte(form[:n])) {
				return append(bytes.Clone(b[:len(b)-n]), redacted...)
			}
		}
	}
	return b
}
