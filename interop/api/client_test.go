package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/httpapi"
	"github.com/elido-app/webhook/interop/api/client"
	sqlitestore "github.com/elido-app/webhook/store_sqlite"
	"github.com/elido-app/webhook/verify"
)

const workspace = 42

// receiver is a customer's server, which verifies.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	verifier *verify.Verifier
	verified int
	status   int
	answer   []byte
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{status: 200}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil || r.verifier == nil || r.verifier.Verify(req.Header, body) != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		r.verified++
		w.WriteHeader(r.status)
		_, _ = w.Write(r.answer)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) set(status int, answer string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status, r.answer = status, []byte(answer)
}

func (r *receiver) trust(t *testing.T, secret *string) {
	t.Helper()
	require.NotNil(t, secret)
	v, err := verify.New(*secret)
	require.NoError(t, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.verifier = v
}

// checked compares what goes through it with the document.
type checked struct {
	t *testing.T
	document
	key string
}

func (c checked) Do(r *http.Request) (*http.Response, error) {
	r.Header.Set("Authorization", c.key)
	e := exchange{Method: r.Method, Target: r.URL.RequestURI(), Header: r.Header}
	var err error
	if r.Body != nil {
		if e.Body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(e.Body))
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if e.Answer, err = io.ReadAll(resp.Body); err != nil {
		return nil, err
	}
	e.Status, e.Answered = resp.StatusCode, resp.Header
	if err := c.check(c.t, e); err != nil {
		c.t.Errorf("%s %s: %v", e.Method, e.Target, err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(e.Answer))
	return resp, nil
}

// A client that was generated from the document goes through the life of an
// endpoint: on SQLite, with a receiver that verifies.
func TestGeneratedClient(t *testing.T) {
	ctx := t.Context()
	st, err := sqlitestore.Open(ctx, filepath.Join(t.TempDir(), "webhooks.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	quiet := slog.New(slog.DiscardHandler)
	d, err := webhook.New(st, webhook.Config{
		Egress: webhook.Egress{AllowLoopback: true},
		Retry:  webhook.RetryPolicy{Delays: []time.Duration{}}, // one attempt
		Logger: quiet,
	})
	require.NoError(t, err)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan error, 1)
	go func() { done <- d.Run(running) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	handler, err := httpapi.New(d, httpapi.Config{Logger: quiet, Authorize: func(r *http.Request, id int64, permission string) error {
		switch key := r.Header.Get("Authorization"); {
		case key == "":
			return httpapi.ErrSignedOut
		case key == "viewer" && permission == httpapi.PermissionEdit, id != workspace:
			return errors.New("no")
		}
		return nil
	}})
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	document := open(t)
	as := func(key string) *client.ClientWithResponses {
		c, err := client.NewClientWithResponses(server.URL, client.WithHTTPClient(checked{t, document, key}))
		require.NoError(t, err)
		return c
	}
	c, r := as("editor"), newReceiver(t)

	types, err := c.ListEventTypesWithResponse(ctx, workspace)
	require.NoError(t, err)
	require.NotNil(t, types.JSON200)
	var ticked []string
	for _, e := range types.JSON200.EventTypes {
		if e.Ticked {
			ticked = append(ticked, e.Name)
		}
	}
	require.Equal(t, []string{"link.created", "link.updated", "link.deleted"}, ticked)

	created, err := c.CreateEndpointWithResponse(ctx, workspace, client.NewEndpoint{
		Url: new(r.URL + "/hooks"), Events: &ticked, Description: new("<b>Bücher & Söhne</b>"), Headers: &client.Headers{"X-Team": "books"}, RateLimit: new(100.5),
	})
	require.NoError(t, err)
	require.NotNil(t, created.JSON201, string(created.Body))
	require.Equal(t, "<b>Bücher & Söhne</b>", created.JSON201.Endpoint.Description)
	r.trust(t, created.JSON201.Secret)
	id := created.JSON201.Endpoint.Id

	// wait returns a delivery that is no longer pending.
	wait := func(deliveryID int64) client.DeliveryWithAttempts {
		t.Helper()
		for {
			one, err := c.GetDeliveryWithResponse(ctx, workspace, id, deliveryID)
			require.NoError(t, err)
			require.NotNil(t, one.JSON200, string(one.Body))
			if one.JSON200.Delivery.Status != client.Pending {
				return *one.JSON200
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	sent, err := c.SendTestWithResponse(ctx, workspace, id)
	require.NoError(t, err)
	require.NotNil(t, sent.JSON202, string(sent.Body))
	one := wait(sent.JSON202.DeliveryId)
	require.Equal(t, client.Delivered, one.Delivery.Status)
	require.Equal(t, "books", (*one.Attempts[0].Headers)["X-Team"])

	// The receiver fails, with bytes that are no text.
	const noise = "\x1f\x8b\x00<script>\xff"
	r.set(500, noise)
	receipt, err := d.Publish(ctx, webhook.Event{Type: "link.created", WorkspaceID: workspace, Data: json.RawMessage(`{"id":12345678901234567890,"price":49.50}`)})
	require.NoError(t, err)
	deliveryID := receipt.DeliveryIDs[0]
	one = wait(deliveryID)
	require.Equal(t, client.Failed, one.Delivery.Status)
	require.Equal(t, noise, string(*one.Attempts[0].ResponseBase64))
	require.Contains(t, *one.Attempts[0].Response, "<script>")
	failed, err := c.ListDeliveriesWithResponse(ctx, workspace, id, &client.ListDeliveriesParams{
		Status: new(client.Failed), Type: new("link.created"), Limit: new(1), Since: new(time.Now().Add(-time.Hour)), Until: new(time.Now().Add(time.Hour)),
	})
	require.NoError(t, err)
	require.Len(t, failed.JSON200.Deliveries, 1)
	require.Equal(t, deliveryID, failed.JSON200.Deliveries[0].Id)
	all, err := c.ListDeliveriesWithResponse(ctx, workspace, id, &client.ListDeliveriesParams{Limit: new(1)})
	require.NoError(t, err)
	all, err = c.ListDeliveriesWithResponse(ctx, workspace, id, &client.ListDeliveriesParams{Cursor: all.JSON200.Next})
	require.NoError(t, err)
	require.Len(t, all.JSON200.Deliveries, 1)
	require.Nil(t, all.JSON200.Next)

	// It is mended: retry, replay, recover.
	r.set(200, "thanks")
	retried, err := c.RetryDeliveryWithResponse(ctx, workspace, id, deliveryID)
	require.NoError(t, err)
	require.NotNil(t, retried.JSON202, string(retried.Body))
	one = wait(deliveryID)
	require.Equal(t, client.Delivered, one.Delivery.Status)
	require.Len(t, one.Attempts, 2)
	replayed, err := c.ReplayEventWithResponse(ctx, workspace, id, receipt.EventID)
	require.NoError(t, err)
	require.NotNil(t, replayed.JSON202, string(replayed.Body))
	require.Len(t, wait(deliveryID).Attempts, 3)
	recovered, err := c.RecoverDeliveriesWithResponse(ctx, workspace, id, client.Recovery{Since: time.Now().Add(-time.Hour)})
	require.NoError(t, err)
	require.Zero(t, recovered.JSON202.Requeued)

	// A rotation, twice clicked; the new secret signs.
	rotated, err := c.RotateSecretWithResponse(ctx, workspace, id, client.Rotation{SeenRotations: 0})
	require.NoError(t, err)
	require.NotNil(t, rotated.JSON200, string(rotated.Body))
	require.NotNil(t, rotated.JSON200.Endpoint.PreviousUntil)
	again, err := c.RotateSecretWithResponse(ctx, workspace, id, client.Rotation{SeenRotations: 0})
	require.NoError(t, err)
	require.NotNil(t, again.ApplicationproblemJSON409)
	require.Contains(t, *again.ApplicationproblemJSON409.Type, "#secret-rotated")
	r.trust(t, rotated.JSON200.Secret)
	_, err = c.RetryDeliveryWithResponse(ctx, workspace, id, deliveryID)
	require.NoError(t, err)
	require.Equal(t, client.Delivered, wait(deliveryID).Delivery.Status)

	// Paused, changed, resumed.
	changed, err := c.ChangeEndpointWithResponse(ctx, workspace, id, client.EndpointChange{IsActive: new(false)})
	require.NoError(t, err)
	require.False(t, changed.JSON200.Endpoint.IsActive)
	sent, err = c.SendTestWithResponse(ctx, workspace, id)
	require.NoError(t, err)
	require.Contains(t, *sent.ApplicationproblemJSON409.Type, "#endpoint-paused")
	replaced, err := c.ReplaceEndpointWithResponse(ctx, workspace, id, client.EndpointChange{Url: new(r.URL), Events: &[]string{"link.*"}, IsActive: new(true)})
	require.NoError(t, err)
	require.True(t, replaced.JSON200.Endpoint.IsActive)
	require.Empty(t, replaced.JSON200.Endpoint.Description)
	read, err := c.GetEndpointWithResponse(ctx, workspace, id)
	require.NoError(t, err)
	require.Equal(t, replaced.JSON200, read.JSON200)
	list, err := c.ListEndpointsWithResponse(ctx, workspace, &client.ListEndpointsParams{Limit: new(10)})
	require.NoError(t, err)
	require.Equal(t, []client.Endpoint{read.JSON200.Endpoint}, list.JSON200.Endpoints)

	// What is refused.
	refused, err := c.CreateEndpointWithResponse(ctx, workspace, client.NewEndpoint{Url: new(r.URL), Events: &[]string{"link.create"}})
	require.NoError(t, err)
	require.Equal(t, "events[0]", (*refused.ApplicationproblemJSON422.Errors)[0].Field)
	viewed, err := as("viewer").GetEndpointWithResponse(ctx, workspace, id)
	require.NoError(t, err)
	require.NotNil(t, viewed.JSON200)
	deleted, err := as("viewer").DeleteEndpointWithResponse(ctx, workspace, id)
	require.NoError(t, err)
	require.Contains(t, *deleted.ApplicationproblemJSON403.Detail, "workspace.edit")
	deleted, err = as("").DeleteEndpointWithResponse(ctx, workspace, id)
	require.NoError(t, err)
	require.NotNil(t, deleted.ApplicationproblemJSON401)
	require.Equal(t, "Bearer", deleted.HTTPResponse.Header.Get("WWW-Authenticate"))
	deleted, err = c.DeleteEndpointWithResponse(ctx, workspace, id)
	require.NoError(t, err)
	require.Equal(t, http.StatusNoContent, deleted.StatusCode())
	read, err = c.GetEndpointWithResponse(ctx, workspace, id)
	require.NoError(t, err)
	require.NotNil(t, read.ApplicationproblemJSON404)
	r.mu.Lock()
	require.Equal(t, 5, r.verified, "each attempt was signed with the secret of its time")
	r.mu.Unlock()
}
