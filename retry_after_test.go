package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever Retry-After says, it asks for a time between now and a day from now,
// and only in one of the two forms that it has.
func FuzzRetryAfter(f *testing.F) {
	for _, value := range []string{
		"0", "1", "100", "86400", "86401", "99999999999999999999", "-5", "+5", "1e308", "NaN", "0x10", "600.5", " 7\t", "007", "\u0667", "",
		"Wed, 01 Jan 9999 00:00:00 GMT", "Mon, 21 Sep 2026 10:00:00 GMT", "Monday, 21-Sep-26 10:00:00 GMT", "Mon Sep 21 10:00:00 2026",
		"Thu, 01 Jan 1970 00:00:00 GMT", "Mon, 21 Sep 2026 10:00:00 CET", "Mon, 00 Jan 0000 00:00:00 GMT",
	} {
		f.Add(value, int64(1_790_000_000_000))
	}
	f.Fuzz(func(t *testing.T, value string, ms int64) {
		now := time.UnixMilli(ms % (250_000_000_000_000))
		got := retryAfter(http.Header{"Retry-After": {value}}, now)
		require.GreaterOrEqual(t, got, time.Duration(0))
		require.LessOrEqual(t, got, 24*time.Hour)
		plain := strings.Trim(value, " \t")
		if seconds, err := strconv.ParseUint(plain, 10, 32); err == nil && strings.Trim(plain, "0123456789") == "" {
			require.Equal(t, min(time.Duration(seconds)*time.Second, 24*time.Hour), got)
		}
		if got > 0 && strings.Trim(plain, "0123456789") != "" {
			date, err := http.ParseTime(plain)
			require.NoError(t, err)
			require.True(t, date.After(now))
		}
		next := RetryPolicy{Delays: []time.Duration{time.Minute}, Jitter: 1}.next(1, now, got)
		require.False(t, next.Before(now.Add(max(got, time.Minute))), "sooner than asked")
		require.False(t, next.After(now.Add(2*24*time.Hour+time.Millisecond)))
	})
}
