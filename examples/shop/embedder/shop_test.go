package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// answers is a transport that gives each request the next of some statuses, and
// keeps the bodies.
type answers struct {
	status []int
	bodies [][]byte
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	a.bodies = append(a.bodies, body)
	status := a.status[0]
	if len(a.status) > 1 {
		a.status = a.status[1:]
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

// newShop has its webhooks in memory, and one endpoint for all orders.
func newShop(t *testing.T, a *answers) *Shop {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(t.TempDir(), "shop.db")+"?_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.Exec(schema); err != nil {
		t.Fatal(err)
	}
	config, err := Config()
	if err != nil {
		t.Fatal(err)
	}
	config.Egress.Transport = a
	st := memorystore.New(memorystore.Options{})
	d, err := webhook.New(st, config)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.CreateEndpoint(t.Context(), webhook.EndpointParams{
		WorkspaceID: workspace, URL: "https://example.com/hooks", Events: []string{"order.*"},
	}); err != nil {
		t.Fatal(err)
	}
	return &Shop{DB: db, Webhooks: d, In: func(*sql.Tx) store.Publisher { return st }}
}

func TestPlacePublishesWithoutSecrets(t *testing.T) {
	a := &answers{status: []int{204}}
	shop := newShop(t, a)
	if _, err := shop.Place(t.Context(), workspace, Order{Item: "tea", Price: 4.5, Card: "4111", Email: "a@b.c"}); err != nil {
		t.Fatal(err)
	}
	n, err := shop.Webhooks.RunOnce(t.Context())
	if n != 1 || err != nil {
		t.Fatal(n, err)
	}
	var got struct {
		Type string
		Data json.RawMessage
	}
	if err := json.Unmarshal(a.bodies[0], &got); err != nil {
		t.Fatal(err)
	}
	if got.Type != "order.placed" || string(got.Data) != `{"id":1,"item":"tea","price":4.5}` {
		t.Errorf("%s", a.bodies[0])
	}
}

func TestOutageFollowsTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &answers{status: []int{500, 503, 200}}
		shop := newShop(t, a)
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- shop.Webhooks.Run(ctx) }()

		if _, err := shop.Place(ctx, workspace, Order{Item: "tea"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // of the bubble's clock
		synctest.Wait()

		page, err := shop.Webhooks.Deliveries(ctx, webhook.DeliveryQuery{WorkspaceID: workspace})
		if err != nil || len(page.Deliveries) != 1 || page.Deliveries[0].Status != webhook.StatusDelivered {
			t.Fatalf("%+v, %v", page, err)
		}
		attempts, err := shop.Webhooks.Attempts(ctx, workspace, page.Deliveries[0].ID)
		if err != nil || len(attempts) != 3 {
			t.Fatalf("%+v, %v", attempts, err)
		}
		for i, want := range []time.Duration{time.Second, 2 * time.Second} {
			if got := attempts[i+1].StartedAt.Sub(attempts[i].StartedAt); got != want {
				t.Errorf("attempt %d came after %v, want %v", i+2, got, want)
			}
		}
		if !bytes.Equal(a.bodies[0], a.bodies[2]) {
			t.Error("the body changed between attempts")
		}
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}
