package webhook_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// TestChannelsKeepThePace: what a vendor takes in a minute is what is sent in it,
// and the rest waits without using up attempts.
func TestChannelsKeepThePace(t *testing.T) {
	for kind, most := range map[webhook.Kind]int{webhook.KindDiscord: 30, webhook.KindTelegram: 20, webhook.KindSentry: 40} {
		bubble(t, webhook.Config{}, func(w *world) {
			e, _, err := w.CreateEndpoint(w.Context(), channelParams(kind))
			require.NoError(w, err)
			w.run()
			for range 40 {
				w.publish(webhook.Event{})
			}
			w.sleep(time.Minute - time.Millisecond)
			require.Len(w, w.net.all(), most)
			w.sleep(time.Minute)
			require.Len(w, w.net.all(), 40)
			for _, d := range deliveries(w) {
				require.Equal(w, 1, d.Attempts)
			}
			none := 0.0
			e, err = w.UpdateEndpoint(w.Context(), workspace, e.ID, webhook.EndpointUpdate{RateLimit: &none})
			require.NoError(w, err)
			require.Zero(w, e.RateLimit)
			w.net.reset()
			for range 40 {
				w.publish(webhook.Event{})
			}
			w.sleep(10 * time.Second)
			require.Len(w, w.net.all(), 40, "the owner may know better")
		})
	}
}

// TestChannelRateLimits: one that is given counts, and so does the host's.
func TestChannelRateLimits(t *testing.T) {
	channels := webhook.Channels{DiscordRateLimit: 2, TelegramRateLimit: -1}
	for _, test := range []struct {
		channels    webhook.Channels
		kind        webhook.Kind
		given, want float64
	}{
		{webhook.Channels{}, webhook.KindDiscord, 0, 0.5}, {webhook.Channels{}, webhook.KindTelegram, 0, 1.0 / 3}, {webhook.Channels{}, webhook.KindSentry, 0, 0},
		{webhook.Channels{}, webhook.KindTelegram, 1, 1}, {channels, webhook.KindDiscord, 0, 2}, {channels, webhook.KindTelegram, 0, 0}, {channels, webhook.KindDiscord, 5, 5},
	} {
		d, err := webhook.New(memorystore.New(memorystore.Options{}), webhook.Config{Channels: test.channels, Logger: quiet()})
		require.NoError(t, err)
		p := channelParams(test.kind)
		p.RateLimit = test.given
		e, _, err := d.CreateEndpoint(t.Context(), p)
		require.NoError(t, err)
		require.InDelta(t, test.want, e.RateLimit, 1e-9, test)
		imported, err := d.ImportEndpoint(t.Context(), webhook.ImportParams{EndpointParams: p, CreatedAt: time.Now()})
		require.NoError(t, err)
		require.InDelta(t, test.want, imported.RateLimit, 1e-9, test)
	}
	for _, r := range []float64{1e-9, 1e9, nan()} {
		_, err := webhook.New(memorystore.New(memorystore.Options{}), webhook.Config{Channels: webhook.Channels{TelegramRateLimit: r}})
		invalid(t, err, "Channels.TelegramRateLimit")
		require.ErrorContains(t, err, "must be negative, 0, or between")
	}
}
