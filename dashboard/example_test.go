package dashboard_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/dashboard"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// A host mounts the pages in its own server, and says who may do what.
func Example() {
	d, err := webhook.New(memorystore.New(memorystore.Options{}), webhook.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	pages, err := dashboard.New(d, dashboard.Config{
		Prefix: "/webhooks",
		Authorize: func(r *http.Request, workspaceID int64, permission string) error {
			if _, err := r.Cookie("session"); err != nil {
				return dashboard.ErrSignedOut
			}
			return nil // a real host looks up what the session's user may do
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/webhooks/", pages)
	server := httptest.NewServer(mux)
	defer server.Close()

	open := func(session, language string) {
		r, _ := http.NewRequest("GET", server.URL+"/webhooks/workspaces/42/endpoints", http.NoBody)
		r.Header.Set("Accept-Language", language)
		if session != "" {
			r.AddCookie(&http.Cookie{Name: "session", Value: session})
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		_, heading, _ := strings.Cut(string(text), "<h1>")
		heading, _, _ = strings.Cut(heading, "</h1>")
		fmt.Println(resp.StatusCode, heading)
	}
	open("", "en")
	open("alice", "en")
	open("alice", "de-AT, en;q=0.8")
	// Output:
	// 401 You are signed out
	// 200 Endpoints
	// 200 Endpunkte
}
