package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
)

func TestEveryTypeIsSeenEverywhere(t *testing.T) {
	for _, eventType := range append(webhook.DefaultCatalog().Types(), webhook.TrafficEvents()...) {
		if !eventType.Subscribable() {
			continue
		}
		var b strings.Builder
		require.NoError(t, run(t.Context(), &b, eventType.Name, ""), eventType.Name)
		require.Equal(t, 3, strings.Count(b.String(), "--- "), b.String())
		for _, secret := range []string{webhookToken, botToken, sentryKey} {
			require.NotContains(t, b.String(), secret)
		}
	}
}

func TestWhatAPersonSees(t *testing.T) {
	var b strings.Builder
	require.NoError(t, run(t.Context(), &b, "link.broken", `{"link_id":7,"slug":"@everyone **sale**","destination_url":"https://shop.example.com/","status_code":404,"error_message":"destination answered 404 Not Found"}`))
	out := b.String()
	require.Contains(t, out, "--- Discord\nElido\n  @everyone **sale** is broken\n")
	require.Contains(t, out, "--- Telegram\n❗ @everyone **sale** is broken\nVisitors do not get to its destination.\n\nReason: destination answered 404 Not Found\n")
	require.Contains(t, out, "--- Sentry\n[error] @everyone **sale** is broken: destination answered 404 Not Found\n")
	require.Contains(t, out, `url "https://discord.com/api/webhooks/1422334455667788990/***"`)

	require.Error(t, run(t.Context(), &b, "link.brokn", ""))
	require.Error(t, run(t.Context(), &b, "link.broken", "[]"))
}
