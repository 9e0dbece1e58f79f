package memorystore_test

import (
	"testing"

	"github.com/elido-app/webhook/store"
	"github.com/elido-app/webhook/store/storetest"
	memorystore "github.com/elido-app/webhook/store_memory"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return memorystore.New(memorystore.Options{}) })
}

func BenchmarkStore(b *testing.B) {
	storetest.Bench(b, func(*testing.B) store.Store { return memorystore.New(memorystore.Options{}) })
}
