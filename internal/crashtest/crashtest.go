// Package crashtest holds what is promised about crashes as tests, for stores
// that outlive a process.
//
// The test binary runs itself as the processes that are to be killed. They
// publish and deliver through the store under test to a receiver in the process
// that runs the test, which stays alive and writes down every request. Killed is
// killed: SIGKILL, from within at a point that a test names, by the receiver
// with a request in its hands, or from outside at any time. In the end the
// receiver's log, what the processes wrote down of what they did, and the
// delivery log must tell the same story: see check.go.
//
// A store's tests call [Main] first thing in TestMain, with all the databases
// there are, and [Run] and [Torture] in tests. The packages of other modules may
// do so, too, if they are called github.com/elido-app/webhook/something.
package crashtest

import (
	"context"
	"testing"

	"github.com/elido-app/webhook/store"
)

// A Database is a kind of durable store.
type Database struct {
	// Name tells it from the others that are given to Main.
	Name string

	// Create makes an empty database, which goes when the test ends, and
	// returns its address.
	Create func(t *testing.T) (address string)

	// Open opens the database at an address, as every process does for itself.
	// The store may call reached, which is never nil, when it comes to one of
	// the points below: the process may not survive it.
	Open func(ctx context.Context, address string, reached func(point string)) (*Handle, error)

	// Opening names points on the way from an empty database to one that is
	// ready for use; Writing names points within each transaction that writes,
	// before it is committed.
	Opening, Writing []string
}

// A Handle is an open database.
type Handle struct {
	Store store.Store
	// Close closes the store, and what was opened beside it.
	Close func() error

	// InTx puts note into a table of the host's and calls publish, in one
	// transaction of the host's. It commits if publish returns nil, and returns
	// the error otherwise. Nil if the store cannot be bound to one.
	InTx func(ctx context.Context, note string, publish func(store.Publisher) error) error
	// Notes returns the notes that were committed.
	Notes func(ctx context.Context) ([]string, error)
}

// Run runs all tests but [Torture]. They take some dozens of processes.
func Run(t *testing.T, db Database) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, db Database)
	}{
		{"at each point of an attempt", killedAtEachPoint},
		{"three times before an attempt", killedThreeTimes},
		{"by its payload", killedByItsPayload},
		{"while publishing", killedWhilePublishing},
		{"while opening", killedWhileOpening},
		{"at every write", killedAtEveryWrite},
	} {
		t.Run("killed "+test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, db)
		})
	}
}
