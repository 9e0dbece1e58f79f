package postgresstore

import (
	"testing"

	"github.com/elido-app/webhook/store"
	"github.com/elido-app/webhook/store/storetest"
)

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		t.Parallel()
		return openNew(t)
	})
}
