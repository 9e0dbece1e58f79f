package dashboard

import (
	"strconv"
	"time"
)

// moment is an instant as the pages show it; the zero moment shows as a dash.
type moment struct {
	Machine  string // for the datetime attribute
	Exact    string
	Relative string
}

// IsZero reports whether there is nothing to show.
func (m moment) IsZero() bool { return m.Machine == "" }

const (
	exactForm  = "2006-01-02 15:04:05 MST"
	minuteForm = "2006-01-02 15:04"
	inputForm  = "2006-01-02T15:04" // of an input of type datetime-local
)

// moment makes one of an instant.
func (v *visit) moment(t time.Time) moment {
	if t.IsZero() {
		return moment{}
	}
	return moment{
		Machine:  t.UTC().Format("2006-01-02T15:04:05.000Z"),
		Exact:    t.In(v.location).Format(exactForm),
		Relative: v.lang.relative(t.Sub(v.now)),
	}
}

// relative says how far away an instant is: what is past is rounded down, what
// comes to the nearest unit.
func (l *language) relative(d time.Duration) string {
	key, past := "time.in.", d <= 0
	if past {
		key, d = "time.ago.", -d
	}
	if past && d < 2*time.Second {
		return l.t("time.now")
	}
	for _, unit := range []struct {
		name   string
		length time.Duration
		most   time.Duration
	}{
		{"seconds", time.Second, 60},
		{"minutes", time.Minute, 60},
		{"hours", time.Hour, 48},
		{"days", 24 * time.Hour, 1 << 40},
	} {
		n := d / unit.length
		if !past {
			n = max((d+unit.length/2)/unit.length, 1)
		}
		if n < unit.most {
			return l.t(key+unit.name, "n", int(n))
		}
	}
	return "" // 3 billion years
}

// latency writes how long an answer took.
func (l *language) latency(d time.Duration) string {
	if d < time.Second {
		ms, decimals := float64(d.Microseconds())/1000, 0
		if ms < 10 {
			decimals = 1
		}
		return l.t("unit.milliseconds", "value", l.number(ms, decimals))
	}
	return l.t("unit.seconds", "value", l.number(d.Seconds(), 2))
}

// share writes a part of a whole as a percentage that is 100 or 0 only if the part
// is all of it or nothing.
func (l *language) share(part, whole int) string {
	if whole == 0 {
		return ""
	}
	percent := float64(part) / float64(whole) * 100
	switch {
	case part < whole && percent > 99.9:
		percent = 99.9
	case part > 0 && percent < 0.1:
		percent = 0.1
	}
	return l.number(percent, 1) + l.percent
}

// bytes writes how large something is.
func (l *language) bytes(n int) string {
	if n < 1024 {
		return l.t("unit.bytes", "value", strconv.Itoa(n))
	}
	return l.t("unit.kibibytes", "value", l.number(float64(n)/1024, 1))
}
