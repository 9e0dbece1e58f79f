package api_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"
)

// document compares requests and answers with the OpenAPI document.
type document struct{ router routers.Router }

func open(t *testing.T) document {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("../../httpapi/openapi.yaml")
	require.NoError(t, err)
	require.True(t, doc.IsOpenAPI31OrLater())
	require.NoError(t, doc.Validate(t.Context(), openapi3.EnableExamplesValidation(), openapi3.EnableSchemaDefaultsValidation(), openapi3.EnableSchemaFormatValidation()))
	// Clients leave alone what they do not know; our answers have nothing of the
	// kind.
	for _, s := range doc.Components.Schemas {
		if s.Ref == "" && len(s.Value.Properties) > 0 {
			s.Value.AdditionalProperties = openapi3.BoolSchema{Has: new(false)}
		}
	}
	doc.Servers = openapi3.Servers{{URL: "http://api.example"}}
	router, err := legacy.NewRouter(doc)
	require.NoError(t, err)
	return document{router}
}

// exchange is one request and its answer, as httpapi's tests write them down.
type exchange struct {
	Method   string
	Target   string
	Header   http.Header
	Body     []byte
	Status   int
	Answered http.Header
	Answer   []byte
}

func (e exchange) request(t *testing.T) *http.Request {
	t.Helper()
	r, err := http.NewRequest(e.Method, "http://api.example"+e.Target, bytes.NewReader(e.Body))
	require.NoError(t, err)
	r.Header = e.Header.Clone()
	// What is the same to HTTP is not to the validator: letter case of media types,
	// and escapes of what needs none.
	if contentType := r.Header.Get("Content-Type"); contentType != "" {
		r.Header.Set("Content-Type", strings.ToLower(contentType))
	}
	if e.Status < 300 {
		r.URL.RawPath = ""
	}
	return r
}

// check says what the document has against an exchange: against the answer, and
// against the request, if that was carried out.
func (d document) check(t *testing.T, e exchange) error {
	t.Helper()
	request := e.request(t)
	route, params, err := d.router.FindRoute(request)
	if err != nil {
		// An answer that says so must be one that is documented all the same.
		if e.Status < 400 {
			return err
		}
		route, params, err = d.router.FindRoute(exchange{Method: "GET", Target: "/v1/workspaces/1/webhooks"}.request(t))
		require.NoError(t, err)
	}
	input := &openapi3filter.RequestValidationInput{Request: request, PathParams: params, Route: route}
	if e.Status < 300 {
		input.Options = &openapi3filter.Options{MultiError: true}
		err = openapi3filter.ValidateRequest(t.Context(), input)
	}
	return errors.Join(err, openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input,
		Status:                 e.Status,
		Header:                 e.Answered,
		Body:                   io.NopCloser(bytes.NewReader(e.Answer)),
		Options:                &openapi3filter.Options{MultiError: true, IncludeResponseStatus: true},
	}))
}

// Everything that httpapi's own tests send and get is as the document says: each
// answer, and each request that was carried out.
func TestExchangesAreAsDocumented(t *testing.T) {
	file := filepath.Join(t.TempDir(), "exchanges")
	cmd := exec.Command("go", "test", "-count=1", "./httpapi", "-args", "-exchanges="+file)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))

	d := open(t)
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<20)
	seen := map[int]int{}
	for lines.Scan() {
		var e exchange
		require.NoError(t, json.Unmarshal(lines.Bytes(), &e))
		if _, below, ok := strings.Cut(e.Target, "/v1/"); ok && e.Status < 300 {
			e.Target = "/v1/" + below // one API is mounted elsewhere
		}
		if e.Method == http.MethodHead || strings.Contains(e.Target, ".yaml") {
			continue // no document
		}
		require.NoError(t, d.check(t, e), "%s %.300s %.300s: %d %.300s", e.Method, e.Target, e.Body, e.Status, e.Answer)
		seen[e.Status]++
	}
	require.NoError(t, lines.Err())
	for _, status := range []int{200, 201, 202, 204, 400, 401, 403, 404, 405, 409, 413, 415, 422, 500, 503} {
		require.Positive(t, seen[status], status)
	}
}

// The validator would tell: it finds fault with what is not as documented.
func TestTheValidatorSeesFaults(t *testing.T) {
	d := open(t)
	good := exchange{
		Method: "GET", Target: "/v1/workspaces/42/webhooks/event-types", Status: 200, Answered: http.Header{"Content-Type": {"application/json"}},
		Answer: []byte(`{"event_types":[{"name":"a.b","description":"","subscribable":true,"planned":false,"form":false,"ticked":false,"sample":{"any":"thing"}}]}`),
	}
	require.NoError(t, d.check(t, good))
	for text, answer := range map[string]string{
		"a member is missing":        strings.Replace(string(good.Answer), `"planned":false,`, "", 1),
		"a member has another type":  strings.Replace(string(good.Answer), `"planned":false,`, `"planned":null,`, 1),
		"a member is not documented": strings.Replace(string(good.Answer), `"planned":false,`, `"planned":false,"secret":["iban"],`, 1),
		"it is no JSON":              "<html>",
	} {
		bad := good
		bad.Answer = []byte(answer)
		require.Error(t, d.check(t, bad), text)
	}
	bad := good
	bad.Answered = http.Header{"Content-Type": {"text/html"}}
	require.Error(t, d.check(t, bad))
	bad = good
	bad.Target = "/v1/workspaces/none/webhooks/event-types"
	require.Error(t, d.check(t, bad))
}

// The client that is checked in is what is generated from the document.
func TestTheClientIsCurrent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "client.gen.go")
	cmd := exec.Command("go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "client", "-o", file, "../../httpapi/openapi.yaml")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	generated, err := os.ReadFile(file)
	require.NoError(t, err)
	checkedIn, err := os.ReadFile("client/client.gen.go")
	require.NoError(t, err)
	require.True(t, bytes.Equal(generated, checkedIn), "run go -C interop generate ./api/client")
}
