package webhook

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCatalogAdd(t *testing.T) {
	c := new(Catalog)
	require.NoError(t, c.Add(
		EventType{Name: "order.paid", Description: "An order was paid.", Secret: []string{"card"}, Sample: json.RawMessage(`{"id":1}`), Planned: true},
		EventType{Name: "click"},
	))
	require.NoError(t, c.Add(
		EventType{Name: "order.paid", Description: "Paid.", Secret: []string{"CARD", "iban"}, Form: true},
		EventType{Name: "click", Sample: json.RawMessage(`{"id":2}`), Planned: true, Ticked: true},
	))
	require.Equal(t, []EventType{
		{Name: "order.paid", Description: "Paid.", Secret: []string{"card", "iban"}, Sample: json.RawMessage(`{"id":1}`), Form: true},
		{Name: "click", Sample: json.RawMessage(`{"id":2}`), Ticked: true},
		testType,
	}, c.Types())

	found, ok := c.Lookup("click")
	require.True(t, ok)
	require.True(t, found.Subscribable())
	found, ok = c.Lookup("test")
	require.True(t, ok)
	require.False(t, found.Subscribable())
	_, ok = c.Lookup("order")
	require.False(t, ok)
}

func TestCatalogAddRefuses(t *testing.T) {
	for _, test := range []struct {
		add  EventType
		want string
	}{
		{EventType{}, `webhook: types[1].name: ""` + notAName},
		{EventType{Name: "Link.created"}, `webhook: types[1].name: "Link.created"` + notAName},
		{EventType{Name: "test"}, `webhook: types[1].name: "test" is reserved for test sends`},
		{EventType{Name: "a", Sample: json.RawMessage(`[]`)}, "webhook: types[1].sample: must be a JSON object: not an object at byte 0"},
	} {
		c := new(Catalog)
		err := c.Add(EventType{Name: "ok", Secret: []string{"x"}}, test.add)
		require.EqualError(t, err, test.want)
		require.IsType(t, &InvalidError{}, err)
		require.Equal(t, new(Catalog), c, "a part was added")
	}
}

func TestCatalogSecret(t *testing.T) {
	c := new(Catalog)
	require.NoError(t, c.Add(EventType{Name: "invitation.sent", Secret: []string{"code"}}, EventType{Name: "link.created"}))
	c.Secret("password_hash")
	require.NoError(t, c.SecretIn("invitation.*", "token"))
	require.NoError(t, c.SecretIn("link.created", "pin"))
	require.NoError(t, c.Add(EventType{Name: "invitation.revoked"}, EventType{Name: "invitations.listed"}))
	for name, want := range map[string]string{
		"invitation.sent":    `{"pin":4,"a":5}`,
		"invitation.revoked": `{"code":3,"pin":4,"a":5}`,
		"invitations.listed": `{"token":2,"code":3,"pin":4,"a":5}`,
		"link.created":       `{"token":2,"code":3,"a":5}`,
	} {
		e := Event{Type: name, WorkspaceID: 1, Data: json.RawMessage(`{"password_hash":1,"token":2,"code":3,"pin":4,"a":5}`)}
		p, err := c.prepare(e, nil, "", publishedAt)
		require.NoError(t, err)
		require.Equal(t, want, string(p.data), name)
	}
	sent, _ := c.Lookup("invitation.sent")
	require.Equal(t, []string{"password_hash", "token", "code"}, sent.Secret)
	for _, pattern := range []string{"", "*", ".*", "link*", "Link.*"} {
		require.IsType(t, &InvalidError{}, c.SecretIn(pattern, "x"), pattern)
	}
}

func TestCatalogClone(t *testing.T) {
	c := DefaultCatalog()
	before := c.Types()
	clone := c.clone()
	require.Equal(t, before, clone.Types())

	c.Secret("id")
	require.NoError(t, c.SecretIn("link.*", "slug"))
	require.NoError(t, c.Add(EventType{Name: "order.paid"}, EventType{Name: "link.created", Description: "Other."}))
	c.ScrubWith(func(string, json.RawMessage) (json.RawMessage, error) { return nil, errors.New("called") })
	require.Equal(t, before, clone.Types())
	p, err := clone.prepare(Event{Type: "link.created", WorkspaceID: 1, Data: json.RawMessage(`{"id":1,"slug":2}`)}, nil, "", publishedAt)
	require.NoError(t, err)
	require.Equal(t, `{"id":1,"slug":2}`, string(p.data))

	require.NoError(t, clone.Add(EventType{Name: "order.shipped"}))
	require.ErrorContains(t, c.checkPublish("order.shipped"), "unknown")

	// Nor do both append to one array.
	c = new(Catalog)
	require.NoError(t, c.Add(EventType{Name: "order.paid"}))
	var called []string
	call := func(name string) ScrubFunc {
		return func(_ string, data json.RawMessage) (json.RawMessage, error) {
			called = append(called, name)
			return data, nil
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		c.Secret(name)
		c.ScrubWith(call(name))
	}
	clone = c.clone()
	c.Secret("original")
	c.ScrubWith(call("original"))
	clone.Secret("clone")
	clone.ScrubWith(call("clone"))
	c.Secret() // compiles anew
	p, err = c.prepare(Event{Type: "order.paid", WorkspaceID: 1, Data: json.RawMessage(`{"original":1,"clone":2}`)}, nil, "", publishedAt)
	require.NoError(t, err)
	require.Equal(t, `{"clone":2}`, string(p.data))
	require.Equal(t, []string{"a", "b", "c", "original"}, called)
	require.Equal(t, []string{"a", "b", "c", "original"}, c.Types()[0].Secret)
}

// What Types and Lookup return, and what Add was given, is nobody else's.
func TestCatalogSharesNothing(t *testing.T) {
	secret, sample := []string{"card"}, json.RawMessage(`{"id":1}`)
	c := new(Catalog)
	require.NoError(t, c.Add(EventType{Name: "order.paid", Secret: secret, Sample: sample}))
	want := c.Types()
	secret[0], sample[1] = "x", 'x'
	got := c.Types()[0]
	got.Secret[0], got.Sample[1] = "x", 'x'
	test, _ := c.Lookup("test")
	test.Sample[1] = 'x'
	require.Equal(t, want, c.Types())
}

func TestScrubFunc(t *testing.T) {
	e := Event{Type: "audit.event", WorkspaceID: 1, Data: json.RawMessage(`{"field":"password_hash","old":"canary"}`)}
	given := string(e.Data.(json.RawMessage))
	errHost := errors.New("canary")
	tests := []struct {
		name, want, wantErr string
		scrub               ScrubFunc
		cause               error
	}{
		{"changes its data", `{"field":"password_hash","old":"......"}`, "", func(_ string, data json.RawMessage) (json.RawMessage, error) {
			copy(data[len(`{"field":"password_hash","old":"`):], "......")
			return data, nil
		}, nil},
		{"brings a secret back", `{"a":1}`, "", func(string, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(` {"Token":"x","a":1}`), nil
		}, nil},
		{"fails", "", "webhook: data: the scrub function failed", func(string, json.RawMessage) (json.RawMessage, error) {
			return nil, errHost
		}, errHost},
		{"panics", "", "webhook: data: the scrub function panicked", func(string, json.RawMessage) (json.RawMessage, error) {
			panic(errHost)
		}, panicError{errHost}},
		{"returns nothing", "", "webhook: data: must be a JSON object: no object at byte 0", func(string, json.RawMessage) (json.RawMessage, error) {
			return nil, nil
		}, nil},
		{"returns an array", "", "webhook: data: must be a JSON object: not an object at byte 0", func(string, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`[]`), nil
		}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := DefaultCatalog()
			c.ScrubWith(nil)
			c.ScrubWith(func(eventType string, data json.RawMessage) (json.RawMessage, error) {
				require.Equal(t, "audit.event", eventType)
				require.Equal(t, `{"field":"password_hash","old":"canary"}`, string(data))
				return data, nil
			})
			c.ScrubWith(test.scrub)
			p, err := c.prepare(e, nil, "", publishedAt)
			require.Equal(t, given, string(e.Data.(json.RawMessage)), "the publisher's data was changed")
			if test.wantErr != "" {
				require.EqualError(t, err, test.wantErr)
				require.Equal(t, test.cause, errors.Unwrap(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, string(p.data))
		})
	}
}

func TestScrubFuncSeesOnlyObjects(t *testing.T) {
	c := DefaultCatalog()
	c.ScrubWith(func(string, json.RawMessage) (json.RawMessage, error) { panic("called") })
	_, err := c.prepare(Event{Type: "link.created", WorkspaceID: 1, Data: []int{1}}, nil, "", publishedAt)
	require.EqualError(t, err, "webhook: data: must be a JSON object: not an object at byte 0")
	_, err = c.prepareTest(1, nil, "", publishedAt)
	require.NoError(t, err, "a test send has nothing to scrub")
}

// The order of calls does not matter to what is secret.
func TestCatalogSecretsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := []func(*Catalog){
			func(c *Catalog) { c.Secret("a") },
			func(c *Catalog) { must(c.SecretIn("x.*", "b")) },
			func(c *Catalog) { must(c.SecretIn("x.y.*", "c")) },
			func(c *Catalog) { must(c.Add(EventType{Name: "x.y.z", Secret: []string{"d"}})) },
			func(c *Catalog) { must(c.Add(EventType{Name: "x.y.z", Secret: []string{"e"}})) },
		}
		c := new(Catalog)
		for _, step := range rapid.Permutation(steps).Draw(t, "steps") {
			step(c)
		}
		p, err := c.prepare(Event{Type: "x.y.z", WorkspaceID: 1, Data: map[string]int{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6}}, nil, "", publishedAt)
		require.NoError(t, err)
		require.Equal(t, `{"f":6}`, string(p.data))
	})
}
