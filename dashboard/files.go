package dashboard

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"net/http"
	"time"
)

var (
	//go:embed assets/dashboard.css
	styleSheet []byte
	//go:embed assets/dashboard.js
	script []byte
	//go:embed assets/icon.svg
	icon []byte
)

// files are what pages load. Their names change with their content, so that
// browsers keep them for good.
type files struct {
	Style, Script, Icon string // URLs
	content             map[string]file
}

type file struct {
	contentType string
	body        []byte
}

func newFiles(prefix, style string) files {
	f := files{content: make(map[string]file, 3)}
	add := func(name, extension, contentType string, body []byte) (url string) {
		sum := sha256.Sum256(body)
		name += "-" + hex.EncodeToString(sum[:6]) + extension
		f.content[name] = file{contentType, body}
		return prefix + "/assets/" + name
	}
	f.Style = add("dashboard", ".css", "text/css; charset=utf-8", append(bytes.Clone(styleSheet), style...))
	f.Script = add("dashboard", ".js", "text/javascript; charset=utf-8", script)
	f.Icon = add("icon", ".svg", "image/svg+xml", icon)
	return f
}

// ServeHTTP serves one of the files to anybody.
func (f files) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	found, ok := f.content[r.PathValue("file")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", found.contentType)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(found.body))
}
