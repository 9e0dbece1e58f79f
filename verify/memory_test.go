package verify_test

import (
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/verify"
)

func TestMemoryForgetsWhatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &verify.Memory{}
		for i := range 1000 {
			// Long and short ones mixed, so that age says nothing about the end.
			d := time.Minute
			if i%2 == 0 {
				d = time.Hour
			}
			require.NoError(t, m.Set(t.Context(), strconv.Itoa(i), "x", d))
		}
		require.Equal(t, 1000, m.Len())
		time.Sleep(time.Minute)
		require.Equal(t, 500, m.Len())
		time.Sleep(time.Hour)
		require.Zero(t, m.Len())
	})
}

func TestMemoryIsBounded(t *testing.T) {
	m := &verify.Memory{Max: 10}
	for i := range 25 {
		require.NoError(t, m.Set(t.Context(), strconv.Itoa(i), "x", time.Hour))
		require.Equal(t, min(i+1, 10), m.Len())
	}
	for i := 15; i < 25; i++ {
		holder, err := m.Hold(t.Context(), strconv.Itoa(i), "y", time.Hour)
		require.NoError(t, err)
		require.Equal(t, "x", holder, "the youngest are kept")
	}
}

// A key that is given anew is young again.
func TestMemoryForgetsTheOldestFirst(t *testing.T) {
	m := &verify.Memory{Max: 3}
	set := func(key string) { require.NoError(t, m.Set(t.Context(), key, "x", time.Hour)) }
	set("a")
	set("b")
	set("c")
	set("a")
	set("d")
	for _, c := range []struct{ key, want string }{
		{"c", "x"}, {"a", "x"}, {"d", "x"}, {"b", "probe"},
	} {
		holder, err := m.Hold(t.Context(), c.key, "probe", time.Hour)
		require.NoError(t, err)
		require.Equal(t, c.want, holder, c.key)
	}
}

func TestMemoryConcurrently(t *testing.T) {
	m := &verify.Memory{Max: 50}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				key, holder := strconv.Itoa(i%80), strconv.Itoa(g)
				_, _ = m.Hold(t.Context(), key, holder, time.Duration(i%3)*time.Microsecond)
				if i%3 == 0 {
					_ = m.Set(t.Context(), key, holder, time.Hour)
				}
				if i%5 == 0 {
					_ = m.Free(t.Context(), key, holder)
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, m.Len(), 50)
}

func BenchmarkMemory(b *testing.B) {
	m := &verify.Memory{}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		key := "delivery:" + strconv.Itoa(i)
		_, _ = m.Hold(b.Context(), key, "token", time.Minute)
		_ = m.Set(b.Context(), key, "handled", time.Hour)
	}
}
