package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/elido-app/webhook/store"
)

func TestLogRecordsAreReadableJSON(t *testing.T) {
	at := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		value any
		want  string
	}{
		{store.Delivery{ID: 7, Status: store.StatusFailed, LastLatency: 1500 * time.Microsecond, LastError: []byte("HTTP 500\xff"),
			Payload: []byte(`{"n":49.50}`), CreatedAt: at},
			`{"id":7,"workspace_id":0,"endpoint_id":0,"event_id":"","event_type":"","status":"failed","attempts":0,"budget":0,` +
				`"total_attempts":0,"created_at":"2026-11-30T09:00:00Z","last_latency_ms":1.5,"last_error":"HTTP 500\ufffd","payload":{"n":49.50}}`},
		{store.Attempt{DeliveryID: 7, Number: 1, StartedAt: at, Status: 500, Response: []byte("no \"idea\"\x00")},
			`{"delivery_id":7,"number":1,"started_at":"2026-11-30T09:00:00Z","status":500,"latency_ms":0,"response":"no \"idea\"\u0000"}`},
		{store.Delivery{CreatedAt: at, Payload: []byte("\x00not json")},
			`{"id":0,"workspace_id":0,"endpoint_id":0,"event_id":"","event_type":"","status":"","attempts":0,"budget":0,` +
				`"total_attempts":0,"created_at":"2026-11-30T09:00:00Z","payload":"\u0000not json"}`},
		{store.Delivery{CreatedAt: at, Payload: []byte("{\"n\":\"\xff\"}"), Message: []byte("\xfe")},
			`{"id":0,"workspace_id":0,"endpoint_id":0,"event_id":"","event_type":"","status":"","attempts":0,"budget":0,` +
				`"total_attempts":0,"created_at":"2026-11-30T09:00:00Z","payload":"{\"n\":\"\ufffd\"}","payload_base64":"eyJuIjoi/yJ9",` +
				`"message":"\ufffd","message_base64":"/g=="}`},
		{store.Attempt{StartedAt: at, Response: []byte("\x1f\x8b\x00 gzip")},
			`{"delivery_id":0,"number":0,"started_at":"2026-11-30T09:00:00Z","status":0,"latency_ms":0,"response":"\u001f\ufffd\u0000 gzip","response_base64":"H4sAIGd6aXA="}`},
	} {
		got, err := json.Marshal(c.value)
		if err != nil || string(got) != c.want {
			t.Errorf("got  %s (%v)\nwant %s", got, err, c.want)
		}
	}
}
