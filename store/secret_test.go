package store_test

import (
	"bytes"
	"database/sql/driver"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	htmltemplate "html/template"
	"io"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/elido-app/webhook/internal/canary"
	"github.com/elido-app/webhook/store"
)

const sample = `whsec_c4nary+T0k3n/"<&>\'=of32bytes`

type (
	exported   struct{ S store.Secret }
	unexported struct{ s store.Secret }
	embedded   struct{ store.Secret }
	hidden     struct {
		inner *unexported
		many  []store.Secret
		byKey map[string]store.Secret
		any   any
	}
	tagged struct {
		XMLName xml.Name     `json:"-" xml:"tagged"`
		Attr    store.Secret `json:"attr,omitempty" xml:"attr,attr"`
		Text    store.Secret `json:"text,omitzero" xml:",chardata"`
		Quoted  store.Secret `json:"quoted" xml:"quoted,omitempty"`
	}
	wrapping struct{ s store.Secret }
)

func (w wrapping) Error() string { return fmt.Sprint("cannot sign with ", w.s) }

// holders are the ways in which a program may hold a secret.
func holders(s store.Secret) map[string]any {
	sealed := store.Sealed{KeyID: "k1", Data: s}
	secrets := store.Secrets{Current: sealed, Previous: sealed, PreviousUntil: time.Unix(1, 0), Credentials: sealed}
	target := &store.Target{EndpointID: 1, URL: "https://example.com/", Secrets: secrets}
	pointer := &s
	channel := make(chan store.Secret, 1)
	channel <- s
	return map[string]any{
		"value":                s,
		"pointer":              pointer,
		"pointer to pointer":   &pointer,
		"field":                exported{s},
		"pointer to struct":    &exported{s},
		"unexported field":     unexported{s},
		"pointer to those":     &unexported{s},
		"embedded":             embedded{s},
		"anonymous":            struct{ A, b any }{s, s},
		"slice":                []store.Secret{s, s},
		"array":                [2]store.Secret{s, s},
		"map":                  map[string]store.Secret{"a": s},
		"map of structs":       map[int]exported{1: {s}},
		"map by pointer":       map[*store.Secret]int{pointer: 1},
		"any":                  []any{s, &s, map[string]any{"a": s}},
		"nested":               map[string]any{"a": []any{exported{s}, &unexported{s}, [][]store.Secret{{s}}}},
		"hidden":               hidden{&unexported{s}, []store.Secret{s}, map[string]store.Secret{"a": s}, s},
		"pointer to hidden":    &hidden{&unexported{s}, []store.Secret{s}, map[string]store.Secret{"a": s}, &s},
		"tagged":               tagged{Attr: s, Text: s, Quoted: s},
		"channel":              channel,
		"func":                 func() store.Secret { return s },
		"error":                wrapping{s},
		"Sealed":               sealed,
		"Secrets":              secrets,
		"Target":               target,
		"Target value":         *target,
		"Lease":                store.Lease{DeliveryID: 1, Target: target},
		"PublishResult":        store.PublishResult{Leases: []store.Lease{{Target: target}}},
		"RecordResult":         store.RecordResult{Claim: store.ClaimResult{Leases: []store.Lease{{Target: target}}}},
		"RotateParams":         store.RotateParams{Secret: sealed},
		"CreateEndpointParams": store.CreateEndpointParams{Seal: func(int64) (store.Secrets, error) { return secrets, nil }},
	}
}

// searcher fails a test in whose output a secret shows.
func searcher(t require.TestingT, secret string) func(where string, text []byte) {
	c := canary.New("secret", secret)
	return func(where string, text []byte) {
		if form := c.In(text); form != "" {
			t.Errorf("the secret shows (%s) in %s: %q", form, where, text)
			t.FailNow()
		}
	}
}

// formats are all verbs with all flags, alone and together, and some widths.
func formats() []string {
	var list []string
	for _, f := range []string{"%", "%+", "%-", "%#", "% ", "%0", "%+#", "% #", "%-+# 0"} {
		for letter := range 26 {
			list = append(list, f+string(rune('a'+letter)), f+string(rune('A'+letter)))
		}
		for _, width := range []string{"5", ".3", "80.40"} {
			for _, verb := range "vsqxXdwTp" {
				list = append(list, f+width+string(verb))
			}
		}
	}
	return list
}

func TestSecretIsNotFormatted(t *testing.T) {
	search := searcher(t, sample)
	all := formats()
	require.Contains(t, all, "%+v")
	require.Contains(t, all, "%#x")
	for name, v := range holders(store.NewSecret(sample)) {
		var b bytes.Buffer
		for _, f := range all {
			fmt.Fprintf(&b, f+" is "+strings.Trim(f, "%")+"\n", v)
		}
		search(name, b.Bytes())
		search(name, []byte(fmt.Sprint(v)+fmt.Sprintln(v, v)+fmt.Errorf("%w, %v", errors.Join(fmt.Errorf("%+v", v)), v).Error()))
	}
	s := store.NewSecret(sample)
	for _, f := range all {
		if !strings.ContainsAny(f, "Tpw") { // which fmt keeps for itself
			require.Equal(t, "[redacted] [redacted]", fmt.Sprintf(f+" "+f, s, &s), f)
		}
	}
	require.Equal(t, "{[redacted]}", fmt.Sprint(exported{s}))
	require.Equal(t, "[redacted][redacted]", s.String()+s.GoString())
}

// The same with secrets of any bytes.
func TestNoSecretIsFormatted(t *testing.T) {
	all := formats()
	names := make([]string, 0, 40)
	for name := range holders(store.Secret{}) {
		names = append(names, name)
	}
	slices.Sort(names)
	rapid.Check(t, func(t *rapid.T) {
		secret := string(rapid.SliceOfN(rapid.Byte(), 16, 64).Draw(t, "secret"))
		v := holders(store.NewSecret(secret))[rapid.SampledFrom(names).Draw(t, "holder")]
		f := rapid.SampledFrom(all).Draw(t, "format")
		searcher(t, secret)(f, fmt.Appendf(nil, f, v))
	})
}

func TestSecretIsNotEncoded(t *testing.T) {
	search := searcher(t, sample)
	for name, v := range holders(store.NewSecret(sample)) {
		var b bytes.Buffer
		// Some holders cannot be encoded: nothing of them gets out before that shows.
		note := func(err error) {
			if err != nil {
				fmt.Fprintln(&b, err)
			}
		}
		note(json.NewEncoder(&b).Encode(v))
		note(json.NewEncoder(&b).Encode(map[string]any{"a": v}))
		note(xml.NewEncoder(&b).Encode(v))
		note(gob.NewEncoder(&b).Encode(v))
		note(gob.NewEncoder(&b).Encode(struct{ V any }{v}))
		_, err := driver.DefaultParameterConverter.ConvertValue(v)
		note(err)
		for _, text := range []string{"{{.}}", "{{.V}} {{printf `%s %q %#v` .V .V .V}} {{println .V}} {{js .V}} {{html .V}} {{urlquery .V}}"} {
			note(template.Must(template.New("").Parse(text)).Execute(&b, map[string]any{"V": v}))
		}
		note(htmltemplate.Must(htmltemplate.New("").Parse(
			`<a title="{{.V}}" href="/?q={{.V}}" onclick="f({{.V}})">{{.V}}</a><script>var v = {{.V}};</script><style>a{b:{{.V}}}</style>`,
		)).Execute(&b, map[string]any{"V": v}))
		search(name, b.Bytes())
	}
	s := store.NewSecret(sample)
	text, err := json.Marshal([]any{s, &s, exported{s}, map[string]any{"a": s}, map[*store.Secret]int{&s: 1}, tagged{Attr: s, Text: s, Quoted: s}})
	require.NoError(t, err)
	require.Equal(t, `["[redacted]","[redacted]",{"S":"[redacted]"},{"a":"[redacted]"},{"[redacted]":1},{"attr":"[redacted]","text":"[redacted]","quoted":"[redacted]"}]`, string(text))
	text, err = xml.Marshal(tagged{Attr: s, Text: s, Quoted: s})
	require.NoError(t, err)
	require.Equal(t, `<tagged attr="[redacted]">[redacted]<quoted>[redacted]</quoted></tagged>`, string(text))
	require.Error(t, gob.NewEncoder(io.Discard).Encode(s), "a secret that comes back as [redacted] would be worse")
	_, err = driver.DefaultParameterConverter.ConvertValue(s)
	require.Error(t, err, "a store takes what Reveal returns")
	require.Equal(t, sample, s.Reveal())
}

func TestSecretIsNotLogged(t *testing.T) {
	search := searcher(t, sample)
	options := &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}
	for name, v := range holders(store.NewSecret(sample)) {
		var b bytes.Buffer
		for _, h := range []slog.Handler{slog.NewTextHandler(&b, options), slog.NewJSONHandler(&b, options)} {
			l := slog.New(h)
			l.Debug(fmt.Sprint(v), "v", v, "err", fmt.Errorf("%v", v), "group", slog.GroupValue(slog.Any("v", v)))
			l.With("v", v).WithGroup("g").With("v", v).Info("", "many", []any{v, v}, "map", map[string]any{"a": v})
		}
		log.New(&b, "", 0).Println(v)
		log.New(&b, "", 0).Printf("%+v %#v", v, v)
		search(name, b.Bytes())
	}
	var b bytes.Buffer
	s := store.NewSecret(sample)
	slog.New(slog.NewTextHandler(&b, nil)).Info("m", "a", s, "b", exported{s}, "c", &s)
	require.Contains(t, b.String(), "a=[redacted] b={S:[redacted]} c=[redacted]\n")
}

// A test that fails shows what it compared, to the last unexported field.
func TestSecretIsNotInADiff(t *testing.T) {
	search := searcher(t, sample)
	one, other := holders(store.NewSecret(sample)), holders(store.NewSecret("something else entirely"))
	for name, v := range one {
		var failure failureText
		assert.Equal(&failure, other[name], v)
		assert.Contains(&failure, []any{other[name]}, v)
		assert.Nil(&failure, v)
		require.NotEmpty(t, failure, name)
		search(name, failure)
	}
}

type failureText []byte

func (f *failureText) Errorf(format string, args ...any) { *f = fmt.Appendf(*f, format, args...) }

// No string and no byte slice that reflection can reach is the secret.
func TestSecretIsOutOfReach(t *testing.T) {
	for name, v := range holders(store.NewSecret(sample)) {
		seen := map[uintptr]bool{}
		var walk func(reflect.Value)
		walk = func(v reflect.Value) {
			switch v.Kind() {
			case reflect.String:
				require.NotContains(t, v.String(), sample[6:18], name)
			case reflect.Pointer:
				if !v.IsNil() && !seen[v.Pointer()] {
					seen[v.Pointer()] = true
					walk(v.Elem())
				}
			case reflect.Interface:
				if !v.IsNil() {
					walk(v.Elem())
				}
			case reflect.Struct:
				for i := range v.NumField() {
					walk(v.Field(i))
				}
			case reflect.Slice, reflect.Array:
				if v.Type().Elem().Kind() == reflect.Uint8 && v.Kind() == reflect.Slice {
					require.NotContains(t, string(v.Bytes()), sample[6:18], name)
				}
				for i := range v.Len() {
					walk(v.Index(i))
				}
			case reflect.Map:
				for i := v.MapRange(); i.Next(); {
					walk(i.Key())
					walk(i.Value())
				}
			}
		}
		walk(reflect.ValueOf(v))
	}
}

// A crash prints the value that it was about, and every goroutine's stack.
func TestSecretIsNotInACrash(t *testing.T) {
	const child = "STORE_TEST_CRASH"
	s := store.NewSecret(sample)
	values := map[string]any{
		"value": s, "pointer": &s, "field": exported{s}, "unexported": unexported{s}, "error": wrapping{s},
		"wrapped": fmt.Errorf("publish: %w", wrapping{s}), "text": fmt.Sprintf("%v %+v %#v", s, exported{s}, &unexported{s}),
	}
	if name := os.Getenv(child); name != "" {
		panic(values[name])
	}
	for name := range values {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
		cmd.Env = append(os.Environ(), child+"="+name, "GOTRACEBACK=system")
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "panic: ")
		searcher(t, sample)(name, out)
	}
}

func TestSecret(t *testing.T) {
	a, b := store.NewSecret(sample), store.NewSecret(sample)
	require.Equal(t, sample, a.Reveal())
	require.True(t, a.Equal(b))
	require.False(t, a.IsZero())
	require.False(t, a.Equal(store.NewSecret(sample+"x")))
	require.False(t, a.Equal(store.Secret{}))
	require.False(t, reflect.TypeFor[store.Secret]().Comparable(), "== would compare in a time that tells")

	for _, zero := range []store.Secret{{}, store.NewSecret("")} {
		require.True(t, zero.IsZero())
		require.Empty(t, zero.Reveal())
		require.True(t, zero.Equal(store.Secret{}))
		require.Equal(t, "[redacted]", fmt.Sprint(zero), "nor whether there is one")
	}
	require.True(t, store.Sealed{KeyID: "k"}.IsZero())
	require.True(t, store.Sealed{KeyID: "k", Data: a}.Equal(store.Sealed{KeyID: "k", Data: b}))
	require.False(t, store.Sealed{KeyID: "k", Data: a}.Equal(store.Sealed{KeyID: "l", Data: a}))
	require.False(t, store.Sealed{KeyID: "k", Data: a}.Equal(store.Sealed{KeyID: "k"}))
}
