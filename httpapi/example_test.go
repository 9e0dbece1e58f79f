package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/elido-app/webhook"
	"github.com/elido-app/webhook/httpapi"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// A host mounts the API in its own server, and says who may do what.
func Example() {
	d, err := webhook.New(memorystore.New(memorystore.Options{}), webhook.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	api, err := httpapi.New(d, httpapi.Config{
		Prefix: "/api",
		Authorize: func(r *http.Request, workspaceID int64, permission string) error {
			switch key := r.Header.Get("Authorization"); {
			case key == "":
				return httpapi.ErrSignedOut // 401
			case key == "Bearer read-only" && permission != httpapi.PermissionView, workspaceID != 42:
				return errors.New("no") // 403
			}
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/api/", api)
	server := httptest.NewServer(mux)
	defer server.Close()

	call := func(key, body string) (int, map[string]any) {
		req, _ := http.NewRequest("POST", server.URL+"/api/v1/workspaces/42/webhooks", strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, nil
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		var answer map[string]any
		_ = json.Unmarshal(text, &answer)
		return resp.StatusCode, answer
	}
	status, answer := call("all", `{"url":"https://customer.example/hooks","events":["link.*"]}`)
	fmt.Println(status, answer["endpoint"].(map[string]any)["events"], answer["secret"].(string)[:6])
	status, answer = call("all", `{"url":"https://customer.example/hooks","events":["link.create"]}`)
	fmt.Println(status, answer["errors"].([]any)[0].(map[string]any)["detail"])
	status, answer = call("read-only", `{}`)
	fmt.Println(status, answer["detail"])
	// Output:
	// 201 [link.*] whsec_
	// 422 "link.create" is an unknown event type; did you mean "link.created"?
	// 403 This needs the permission workspace.edit in the workspace.
}
