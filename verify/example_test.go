package verify_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	_ "github.com/mattn/go-sqlite3"

	"github.com/elido-app/webhook/verify"
)

// deliver sends an event the way Elido does, and returns the status it got.
func deliver(h http.Handler, deliveryID string) int {
	ts := stampOf(time.Now())
	r := httptest.NewRequest(http.MethodPost, "/webhooks", strings.NewReader(body))
	r.Header = signV1(secret, ts, body)
	r.Header.Set("X-Webhook-Delivery", deliveryID)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func Example() {
	v, err := verify.New("whsec_C5htavmWz6qefupiS2ol3iEstvDvUqtCA5DoX+csIFA=")
	if err != nil {
		log.Fatal(err)
	}
	handler := v.Handler(func(_ context.Context, ev verify.Event) error {
		var link struct {
			ID int64 `json:"id"`
		}
		if err := json.Unmarshal(ev.Data, &link); err != nil {
			return err
		}
		fmt.Println(ev.Type, "in workspace", ev.WorkspaceID, "about link", link.ID)
		return nil
	})
	fmt.Println(deliver(handler, "55120"))
	// Output:
	// link.created in workspace 42 about link 91834
	// 200
}

// In a handler of your own.
func ExampleVerifier_Request() {
	v, err := verify.New("whsec_C5htavmWz6qefupiS2ol3iEstvDvUqtCA5DoX+csIFA=")
	if err != nil {
		log.Fatal(err)
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ev, err := v.Request(r)
		if err != nil {
			http.Error(w, err.Error(), verify.StatusCode(err))
			return
		}
		fmt.Println(ev.Type)
	})
	fmt.Println(deliver(handler, "55120"))

	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/webhooks", strings.NewReader(body)))
	fmt.Print(w.Code, " ", w.Body)
	// Output:
	// link.created
	// 200
	// 400 verify: missing header: no signature
}

// For frameworks that hand over headers and raw body.
func ExampleVerifier_Verify() {
	v, err := verify.New("whsec_C5htavmWz6qefupiS2ol3iEstvDvUqtCA5DoX+csIFA=")
	if err != nil {
		log.Fatal(err)
	}
	header := signV1(secret, stampOf(time.Now()), body)
	fmt.Println(v.Verify(header, []byte(body)))
	fmt.Println(v.Verify(header, []byte(body+"\n")))
	fmt.Println(v.Verify(signV1(secret, "1782000000", body), []byte(body)))
	// Output:
	// <nil>
	// verify: wrong signature
	// verify: stale timestamp: X-Webhook-Timestamp
}

// While a secret is being replaced, the receiver knows both.
func ExampleNew_rotation() {
	v, err := verify.New(
		"whsec_78p2f0eZCUNgqGc72rKjfmxviWYq5Ee1HkfSWT+swRI=", // new
		"whsec_C5htavmWz6qefupiS2ol3iEstvDvUqtCA5DoX+csIFA=", // old
	)
	if err != nil {
		log.Fatal(err)
	}
	handler := v.Handler(func(context.Context, verify.Event) error { return nil })
	fmt.Println(deliver(handler, "55120"))

	_, err = verify.New("changeme")
	fmt.Println(err)
	// Output:
	// 200
	// verify: secret 1 of 1: a secret has 24 to 256 bytes
}

// A delivery that comes twice is handled once.
func ExampleOnce() {
	v, err := verify.New("whsec_C5htavmWz6qefupiS2ol3iEstvDvUqtCA5DoX+csIFA=")
	if err != nil {
		log.Fatal(err)
	}
	once := verify.Once{Seen: &verify.Memory{}}
	handler := v.Handler(once.Handler(func(_ context.Context, ev verify.Event) error {
		fmt.Println("handling", ev.DeliveryID)
		return nil
	}))
	fmt.Println(deliver(handler, "55120"))
	fmt.Println(deliver(handler, "55120"))
	// Output:
	// handling 55120
	// 200
	// 200
}

// Work and memory in one transaction: the event has its effect exactly once,
// whenever the process dies.
func ExampleOnce_First() {
	v, err := verify.New("whsec_C5htavmWz6qefupiS2ol3iEstvDvUqtCA5DoX+csIFA=")
	if err != nil {
		log.Fatal(err)
	}
	db, err := sql.Open("sqlite3", "file:example?mode=memory&cache=shared")
	if err != nil {
		log.Fatal(err)
	}
	seen, err := verify.NewSQL(db, verify.Question, "")
	if err != nil {
		log.Fatal(err)
	}
	_, err = db.Exec(`CREATE TABLE inbox (type TEXT, data TEXT)`)
	if err := errors.Join(err, seen.Create(context.Background())); err != nil {
		log.Fatal(err)
	}

	handler := v.Handler(func(ctx context.Context, ev verify.Event) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		first, err := verify.Once{Seen: seen.In(tx)}.First(ctx, ev)
		if err != nil || !first {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO inbox VALUES (?, ?)`, ev.Type, string(ev.Data)); err != nil {
			return err
		}
		return tx.Commit()
	})
	fmt.Println(deliver(handler, "55120"))
	fmt.Println(deliver(handler, "55120"))

	var rows int
	if err := db.QueryRow(`SELECT count(*) FROM inbox`).Scan(&rows); err != nil {
		log.Fatal(err)
	}
	fmt.Println(rows, "row")
	_ = db.Close()
	// Output:
	// 200
	// 200
	// 1 row
}
