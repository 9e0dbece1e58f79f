package dashboard

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"strconv"
	"sync"
)

//go:embed templates/*.html
var templateFiles embed.FS

// templates are the pages, in each language.
var templates = sync.OnceValue(func() map[string]*template.Template {
	speak := func(l *language) template.FuncMap {
		return template.FuncMap{"t": l.t, "integer": l.integer}
	}
	all := template.Must(template.New("").Funcs(speak(languages()[english])).ParseFS(templateFiles, "templates/*.html"))
	byTag := make(map[string]*template.Template)
	for _, l := range languages() {
		byTag[l.tag] = template.Must(all.Clone()).Funcs(speak(l))
	}
	return byTag
})

// page is what differs between pages, apart from the template.
type page struct {
	Title  string
	Crumbs []crumb
	Notice *notice
	Status int    // HTTP's; 0 means 200
	URL    string // where to read it again; the request's own if ""
	Live   int    // seconds until it is worth while; 0: never
	Body   any
}

// crumb is a page above, on the way to this one.
type crumb struct{ Name, URL string }

// notice is what happened, on top of a page.
type notice struct {
	Class string // "good", "warn" or "bad"
	Text  string
}

// frame is what templates get.
type frame struct {
	page
	Lang, Nonce  string
	Name, Home   string
	Workspace    string
	MayEdit      bool
	Style        string
	Script, Icon string
	Top          string // the workspace's endpoints
}

// policy is the Content-Security-Policy of pages: they load one style sheet and
// one script, both by nonce (a host may serve its users' uploads from the same
// origin), talk to this origin alone, and stand in no frame.
func policy(nonce string) string {
	return "default-src 'none'; style-src 'nonce-" + nonce + "'; script-src 'nonce-" + nonce + "'; img-src 'self'; connect-src 'self'; " +
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
}

// show answers with a page.
func (v *visit) show(name string, p page) {
	if p.Notice == nil {
		p.Notice = v.doneNotice()
	}
	if p.URL == "" {
		p.URL = v.r.URL.Path
		if v.r.URL.RawQuery != "" && v.r.URL.Query().Get("done") == "" {
			p.URL += "?" + v.r.URL.RawQuery
		}
	}
	f := frame{
		page: p, Lang: v.lang.tag, Nonce: v.nonce, Name: v.config.Name, Home: v.config.Home, MayEdit: v.mayEdit,
		Style: v.files.Style, Script: v.files.Script, Icon: v.files.Icon,
	}
	if v.workspace > 0 {
		f.Workspace, f.Top = strconv.FormatInt(v.workspace, 10), v.path("")
	}
	if f.Home == "" {
		f.Home = f.Top
	}
	var out bytes.Buffer // so that no half of a page is sent
	if err := templates()[v.lang.tag].ExecuteTemplate(&out, name, f); err != nil {
		v.config.Logger.Error("webhook: dashboard: a page could not be made", "page", name, "error", err)
		http.Error(v.w, v.lang.t("problem.failed.text"), http.StatusInternalServerError)
		return
	}
	h := v.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Language", v.lang.tag)
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy(v.nonce))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY") // for browsers that do not know frame-ancestors
	// With no-referrer browsers would send "Origin: null" along with our own forms.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	v.w.WriteHeader(max(p.Status, http.StatusOK))
	_, _ = v.w.Write(out.Bytes())
}

// doneNotice says what a form did that led here.
func (v *visit) doneNotice() *notice {
	q := v.r.URL.Query()
	key := "done." + q.Get("done")
	if v.r.Method == http.MethodPost || !v.lang.has(key) {
		return nil
	}
	n, _ := strconv.Atoi(q.Get("n"))
	return &notice{"good", v.lang.t(key, "n", max(n, 0))}
}
