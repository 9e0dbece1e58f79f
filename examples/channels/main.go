// Channels sends an event to Discord, Telegram and Sentry, or rather to servers on
// this machine that stand in for them, and shows what a person would see in each.
//
//	go run ./examples/channels
//	go run ./examples/channels link.broken
//	go run ./examples/channels member.role_changed '{"email":"dana@acme.example","new_role":"admin","changed_by_user_id":1187}'
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/internal/channel/channeltest"
	memorystore "github.com/elido-app/webhook/store_memory"
)

const workspace = 42

// What the customer copies from Discord, from Telegram's BotFather and from Sentry.
const (
	webhookID    = "1422334455667788990"
	webhookToken = "made-up-discord-token"
	botToken     = "123456789:AA-made-up-telegram-bot-token-12345"
	chatID       = "-1001234567890"
	sentryKey    = "0123456789abcdef0123456789abcdef"
)

func main() {
	eventType, data := "link.created", ""
	if len(os.Args) > 1 {
		eventType = os.Args[1]
	}
	if len(os.Args) > 2 {
		data = os.Args[2]
	}
	if err := run(context.Background(), os.Stdout, eventType, data); err != nil {
		log.Fatal(err)
	}
}

// run publishes one event, without data the catalog's sample, and writes what it
// looks like everywhere.
func run(ctx context.Context, w io.Writer, eventType, data string) error {
	// The stand-ins keep to the rules that the vendors publish.
	discord := channeltest.NewDiscord(webhookID, webhookToken)
	telegram := channeltest.NewTelegram(botToken, chatID)
	sentry := channeltest.NewSentry("", "7", sentryKey)
	discordServer, telegramServer, sentryServer := httptest.NewServer(discord), httptest.NewServer(telegram), httptest.NewServer(sentry)
	defer discordServer.Close()
	defer telegramServer.Close()
	defer sentryServer.Close()

	catalog := webhook.DefaultCatalog()
	if err := catalog.Add(webhook.TrafficEvents()...); err != nil {
		return err
	}
	d, err := webhook.New(memorystore.New(memorystore.Options{}), webhook.Config{
		Catalog: catalog,
		// With the real ones, both of these are left out.
		Channels: webhook.Channels{DiscordBase: discordServer.URL, TelegramBase: telegramServer.URL},
		Egress:   webhook.Egress{AllowLoopback: true},
		Logger:   slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	for _, p := range []webhook.EndpointParams{
		{Kind: webhook.KindDiscord, URL: "https://discord.com/api/webhooks/" + webhookID + "/" + webhookToken},
		{Kind: webhook.KindTelegram, Config: map[string]string{"chat_id": chatID, "bot_token": botToken}},
		{Kind: webhook.KindSentry, Config: map[string]string{
			"dsn": "http://" + sentryKey + "@" + strings.TrimPrefix(sentryServer.URL, "http://") + "/7"}},
	} {
		p.WorkspaceID, p.Events = workspace, []string{eventType}
		endpoint, _, err := d.CreateEndpoint(ctx, p) // there is no secret: nothing is signed
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "endpoint %d, %s: url %q, config %v\n", endpoint.ID, endpoint.Kind, endpoint.URL, endpoint.Config)
	}

	if data == "" {
		known, _ := d.Catalog().Lookup(eventType)
		data = string(known.Sample)
	}
	receipt, err := d.Publish(ctx, webhook.Event{Type: eventType, WorkspaceID: workspace, Data: json.RawMessage(data)})
	if err != nil {
		return err
	}
	if _, err := d.RunOnce(ctx); err != nil { // a service calls Run
		return err
	}
	for _, id := range receipt.DeliveryIDs {
		delivery, err := d.Delivery(ctx, workspace, id)
		if err != nil {
			return err
		}
		if delivery.Status != webhook.StatusDelivered {
			return fmt.Errorf("delivery %d: %s: %s", id, delivery.Status, delivery.LastError)
		}
	}

	fmt.Fprintln(w, "\n--- Discord")
	for _, m := range discord.Messages() {
		fmt.Fprintln(w, m)
	}
	fmt.Fprintln(w, "--- Telegram")
	for _, m := range telegram.Messages() {
		fmt.Fprintln(w, m)
	}
	fmt.Fprintln(w, "--- Sentry")
	for _, e := range sentry.Events() {
		fmt.Fprintln(w, e)
	}
	return nil
}
