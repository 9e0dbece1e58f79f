package storetest_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
	"github.com/elido-app/webhook/store/storetest"
	memorystore "github.com/elido-app/webhook/store_memory"
)

func TestCasesSayWhatTheyAreAbout(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range storetest.Cases() {
		require.NotEmpty(t, c.Name)
		require.False(t, seen[c.Name], "two cases are named %q", c.Name)
		seen[c.Name] = true
		require.True(t, len(c.Promise) > 20 && c.Promise[len(c.Promise)-1] == '.', "the promise of %s is no sentence: %q", c.Name, c.Promise)
	}
}

// flaw is one way to break a promise, and the cases that must notice.
type flaw struct {
	name   string
	breaks func(b *broken, good store.Store)
	caught []string
}

func flaws() []flaw {
	return slices.Concat(endpointFlaws, secretFlaws, publishFlaws, claimFlaws, recordFlaws, orderFlaws, logFlaws, maintainFlaws, valueFlaws)
}

func cases() map[string]storetest.Case {
	all := map[string]storetest.Case{}
	for _, c := range storetest.Cases() {
		all[c.Name] = c
	}
	return all
}

func newGood() store.Store { return memorystore.New(memorystore.Options{FirstDeliveryID: 1}) }

// TestBrokenStoresAreCaught: a suite that passes everything proves nothing.
func TestBrokenStoresAreCaught(t *testing.T) {
	all := cases()
	for _, f := range flaws() {
		t.Run(f.name, func(t *testing.T) {
			require.NotEmpty(t, f.caught)
			for _, name := range f.caught {
				c, ok := all[name]
				require.True(t, ok, "there is no case %q", name)
				if testing.Short() && strings.HasPrefix(name, "cost/") {
					continue
				}
				good := newGood()
				bad := unbroken(good)
				f.breaks(bad, good)
				err := c.Check(t.Context(), bad)
				require.Error(t, err, "the case %s did not notice", name)
				// What it says is of use to whoever wrote the store.
				found, led, ok := strings.Cut(err.Error(), "\ncalls that led there")
				require.True(t, ok, err)
				require.Contains(t, led, "\n    1 ", "it tells of the first call")
				if !strings.Contains(f.name, "panic") {
					require.NotContains(t, found, "panic:", "the case %s", name)
				}
				t.Logf("%s:\n%s", name, found)
			}
		})
	}
}

// TestEveryCaseCatchesAFlaw: a case that no store fails proves nothing either.
func TestEveryCaseCatchesAFlaw(t *testing.T) {
	caught := map[string]bool{}
	for _, f := range flaws() {
		for _, name := range f.caught {
			caught[name] = true
		}
	}
	var idle []string
	for _, c := range storetest.Cases() {
		if !caught[c.Name] {
			idle = append(idle, c.Name)
		}
	}
	require.Empty(t, idle)
}

// TestAStoreWithoutFlawsPasses: it is the flaws that are caught.
func TestAStoreWithoutFlawsPasses(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return unbroken(newGood()) })
}
