package httpapi

import (
	"bytes"
	_ "embed"
	"net/http"
)

//go:embed openapi.yaml
var openapi []byte

// document returns the OpenAPI document of an API that is mounted at a prefix.
func document(prefix string) []byte {
	if prefix == "" {
		return openapi
	}
	return bytes.Replace(openapi, []byte("\n  - url: /\n"), []byte("\n  - url: "+prefix+"\n"), 1)
}

// serveDocument returns the OpenAPI document. It is the same for everybody, so
// nobody is asked who they are.
func (a *api) serveDocument(w http.ResponseWriter, _ *http.Request) {
	write(w, http.StatusOK, "application/yaml", a.document)
}
