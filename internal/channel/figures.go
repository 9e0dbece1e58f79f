package channel

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// figure returns a number with its thousands parted: 50,000 and -1,234.50. What
// is no plain decimal number stays as it is.
func figure(s string) string {
	if !isDecimal(s) {
		if f, err := strconv.ParseFloat(s, 64); err == nil && strings.ContainsAny(s, "eE") && f > -1e15 && f < 1e15 {
			if plain := strconv.FormatFloat(f, 'f', -1, 64); len(plain) < 24 {
				return figure(plain)
			}
		}
		return s
	}
	number, negative := strings.CutPrefix(s, "-")
	whole, fraction, hasFraction := strings.Cut(number, ".")
	var b strings.Builder
	if negative {
		b.WriteByte('-')
	}
	for i := range len(whole) {
		if i > 0 && (len(whole)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteByte(whole[i])
	}
	if hasFraction {
		b.WriteByte('.')
		b.WriteString(fraction)
	}
	return b.String()
}

// isDecimal reports whether a text is a number without an exponent, as JSON has it.
func isDecimal(s string) bool {
	whole, fraction, hasFraction := strings.Cut(strings.TrimPrefix(s, "-"), ".")
	return whole != "" && strings.Trim(whole+fraction, "0123456789") == "" && (len(whole) == 1 || whole[0] != '0') && (!hasFraction || fraction != "")
}

// money returns an amount and its currency: "1,234.50 EUR". Without a currency it
// is a number like any other.
func money(amount, currency string) string {
	if amount == "" {
		return ""
	}
	shown := figure(amount)
	if !isCurrency(currency) {
		return strings.TrimSpace(shown + " " + currency)
	}
	if dot := strings.IndexByte(shown, '.'); dot == len(shown)-2 { // 49.5, as programs write it
		shown += "0"
	}
	return shown + " " + strings.ToUpper(currency)
}

func isCurrency(s string) bool {
	return len(s) == 3 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// percent returns a number of hundredths: "90%".
func percent(s string) string {
	if s = strings.TrimSpace(strings.TrimSuffix(s, "%")); s == "" {
		return ""
	}
	return figure(s) + "%"
}

// share returns how many hundredths one number is of another, rounded down, or "".
func share(part, whole string) string {
	p, err1 := strconv.ParseFloat(part, 64)
	w, err2 := strconv.ParseFloat(whole, 64)
	if err1 != nil || err2 != nil || !(p >= 0 && w > 0 && w < 1e300 && p <= 1e12*w) {
		return ""
	}
	return percent(strconv.FormatInt(int64(p*100/w), 10))
}

const (
	readableTime = "2 Jan 2006, 15:04 UTC"
	readableDay  = "2 Jan 2006"
)

// readable returns an RFC 3339 instant as "21 Sep 2026, 09:14 UTC", a day as
// "21 Sep 2026", and any other text as it is.
func readable(s string) string {
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at.UTC().Format(readableTime)
	}
	if at, err := time.Parse(time.DateOnly, s); err == nil {
		return at.Format(readableDay)
	}
	return s
}

// moment returns an instant that is a number, in seconds or milliseconds since
// 1970, if it may be one: from 2001 to 2096.
func moment(n json.Number) (string, bool) {
	i, err := strconv.ParseInt(n.String(), 10, 64)
	switch {
	case err != nil:
		return "", false
	case i >= 1e9 && i < 4e9:
		return time.Unix(i, 0).UTC().Format(readableTime), true
	case i >= 1e12 && i < 4e12:
		return time.UnixMilli(i).UTC().Format(readableTime), true
	}
	return "", false
}
