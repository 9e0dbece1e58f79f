// Package storetest holds the contract of package store as tests. A store that
// passes them may be given to a Dispatcher:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store {
//			st, err := mystore.Open(t.TempDir())
//			if err != nil {
//				t.Fatal(err)
//			}
//			t.Cleanup(func() { _ = st.Close() })
//			return st
//		})
//	}
//
// A case that fails names the promise that broke, what was seen instead, and the
// calls that led there. Bench measures what a Dispatcher does most.
package storetest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elido-app/webhook/store"
)

// These bound one case, so that a store which hangs fails it.
const (
	caseTimeout = 2 * time.Minute
	costTimeout = 10 * time.Minute // it stores a lot
)

// Case is one promise of the contract. Those whose names begin with "cost/"
// measure: they compare how long calls take with little and with much in the
// store, in one run.
type Case struct {
	Name    string
	Promise string
	// Check returns an error if st breaks the promise. It wants a store of its
	// own with nothing in it, and may close it.
	Check func(ctx context.Context, st store.Store) error
}

// Cases returns the whole contract, in the order of package store.
func Cases() []Case {
	return slices.Concat(
		createCases, updateCases, rotateCases, secretsCases, deleteCases, isolationCases,
		publishCases, idempotencyCases, handoffCases,
		claimCases, backlogCases, leaseCases, nextDueCases,
		recordCases, healthCases, orderCases, orderRaceCases, renewCases, probeCases,
		logCases, retryCases, recoverCases,
		maintainCases, instantCases, valueCases, lifecycleCases, costCases,
	)
}

// Run checks every case as a subtest. For each it calls open, which returns a
// new, empty store and sees to its end (with t.Cleanup; closing it once more
// after a case did must do no harm). To run cases side by side, open may call
// t.Parallel; to leave one out, t.Skip. With -short those that measure are left
// out.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	for _, c := range Cases() {
		t.Run(c.Name, func(t *testing.T) {
			timeout := caseTimeout
			if strings.HasPrefix(c.Name, "cost/") {
				timeout = costTimeout
				if testing.Short() {
					t.Skip("it measures, with much in the store")
				}
			}
			st := open(t)
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			if err := c.Check(ctx, st); err != nil {
				t.Errorf("broken promise: %s\n%v", c.Promise, err)
			}
		})
	}
}
