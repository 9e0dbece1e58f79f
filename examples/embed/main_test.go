package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/verify"
)

func TestLinkCreatedThroughTheAPIReachesTheReceiver(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	api := "http://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, listener, filepath.Join(t.TempDir(), "embed.db"), webhook.Config{Egress: webhook.Egress{AllowLoopback: true}})
	}()

	var handler atomic.Pointer[http.Handler]
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*handler.Load()).ServeHTTP(w, r) }))
	defer receiver.Close()
	var created struct{ Secret string }
	post(t, api+"/webhooks", `{"url":"`+receiver.URL+`","events":["link.*"]}`, http.StatusCreated, &created)
	v, err := verify.New(created.Secret)
	require.NoError(t, err)
	events := make(chan verify.Event, 1)
	h := v.Handler(func(_ context.Context, e verify.Event) error { events <- e; return nil })
	handler.Store(&h)

	post(t, api+"/webhooks", `{"url":"ftp://example.com","events":["link.*"]}`, http.StatusUnprocessableEntity, nil)
	var l link
	post(t, api+"/links", `{"slug":"spring-sale","destination_url":"https://example.com"}`, http.StatusCreated, &l)
	select {
	case e := <-events:
		require.Equal(t, "link.created", e.Type)
		var got link
		require.NoError(t, json.Unmarshal(e.Data, &got))
		require.Equal(t, l, got)
	case <-time.After(10 * time.Second):
		t.Fatal("nothing arrived")
	}
	cancel() // what a signal does
	require.NoError(t, <-done)
}

func post(t *testing.T, url, body string, status int, into any) {
	t.Helper()
	r, err := http.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer r.Body.Close()
	require.Equal(t, status, r.StatusCode)
	if into != nil {
		require.NoError(t, json.NewDecoder(r.Body).Decode(into))
	}
}
