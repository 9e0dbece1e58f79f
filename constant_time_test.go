package webhook_test

import (
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSecretsAreComparedInConstantTime: how long a comparison takes must not
// say how much of a guess was right, and no test that runs the code can see
// that. So this one reads it: nowhere in the module is a MAC or a revealed secret
// compared but by crypto/subtle or crypto/hmac.
func TestSecretsAreComparedInConstantTime(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command")
	}
	packages, exports := listPackages(t)
	equals := map[string]bool{} // packages with an Equal that compares as it should
	for _, p := range packages {
		c := comparisons{fset: token.NewFileSet(), info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}}
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, 0)
			require.NoError(t, err)
			files = append(files, file)
		}
		config := types.Config{Importer: importer.ForCompiler(c.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
		_, err := config.Check(p.ImportPath, c.fset, files, c.info)
		require.NoError(t, err)
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool { c.look(n); return true })
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "Equal" && c.constantTime(f) {
					equals[p.ImportPath] = true
				}
			}
		}
		require.Empty(t, c.found)
	}
	require.True(t, equals[module+"/internal/sig"], "MAC.Equal does not return what crypto/subtle says")
	require.True(t, equals[module+"/store"], "Secret.Equal does not return what crypto/subtle says")
}

type listed struct {
	Dir, ImportPath, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// listPackages returns the packages of the module but its examples, and where
// the compiler's view of everything they import is.
func listPackages(t *testing.T) (packages []listed, exports map[string]string) {
	goList := func(args ...string) string {
		out, err := exec.Command("go", append([]string{"list"}, args...)...).Output()
		require.NoError(t, err)
		return string(out)
	}
	args := []string{"-export", "-deps", "-json=Dir,ImportPath,Export,GoFiles,DepOnly"}
	for path := range strings.FieldsSeq(goList("./...")) {
		if !strings.HasPrefix(path, module+"/examples/") {
			args = append(args, path)
		}
	}
	exports = map[string]string{}
	for dec := json.NewDecoder(strings.NewReader(goList(args...))); dec.More(); {
		var p listed
		require.NoError(t, dec.Decode(&p))
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			packages = append(packages, p)
		}
	}
	require.Greater(t, len(packages), 5)
	return packages, exports
}

// comparisons looks through one package.
type comparisons struct {
	fset  *token.FileSet
	info  *types.Info
	found []string // where something secret is compared
}

func (c *comparisons) look(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		switch n.Op {
		case token.EQL, token.NEQ, token.LSS, token.GTR, token.LEQ, token.GEQ:
			c.report(n, n.X, n.Y)
		}
	case *ast.SwitchStmt:
		if n.Tag != nil {
			c.report(n, n.Tag)
		}
	case *ast.IndexExpr: // a map hashes and compares its key
		if m := c.info.TypeOf(n.X); m != nil {
			if _, ok := m.Underlying().(*types.Map); ok {
				c.report(n, n.Index)
			}
		}
	case *ast.CallExpr:
		switch c.callee(n) {
		case "bytes.Equal", "bytes.Compare", "bytes.EqualFold", "bytes.HasPrefix", "bytes.HasSuffix", "bytes.Contains", "bytes.Index",
			"slices.Equal", "slices.Compare", "slices.Contains", "slices.Index", "maps.Equal", "reflect.DeepEqual", "cmp.Compare",
			"strings.EqualFold", "strings.Compare", "strings.HasPrefix", "strings.HasSuffix", "strings.Contains", "strings.Index":
			c.report(n, n.Args...)
		}
	}
}

func (c *comparisons) report(at ast.Node, operands ...ast.Expr) {
	for _, e := range operands {
		if c.secret(e) {
			c.found = append(c.found, c.fset.Position(at.Pos()).String())
		}
	}
}

// secret reports whether an expression is made from a MAC or a revealed secret.
func (c *comparisons) secret(e ast.Expr) (found bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			switch c.callee(call) {
			case "len", "crypto/subtle.ConstantTimeCompare", "crypto/hmac.Equal",
				module + "/internal/sig.Equal", module + "/store.Equal", module + "/store.IsZero":
				return false // what comes out tells nothing of what went in
			case module + "/store.Reveal":
				found = true
			}
		}
		if x, ok := n.(ast.Expr); ok {
			t := c.info.TypeOf(x)
			if p, ok := t.(*types.Pointer); ok {
				t = p.Elem()
			}
			if named, ok := types.Unalias(t).(*types.Named); ok && named.Obj().Name() == "MAC" {
				found = true
			}
		}
		return !found
	})
	return found
}

// callee names the function called by its package and name, a method likewise.
func (c *comparisons) callee(call *ast.CallExpr) string {
	fun := ast.Unparen(call.Fun)
	if index, ok := fun.(*ast.IndexExpr); ok { // with type arguments
		fun = index.X
	}
	var name *ast.Ident
	switch f := fun.(type) {
	case *ast.Ident:
		name = f
	case *ast.SelectorExpr:
		name = f.Sel
	default:
		return ""
	}
	o := c.info.Uses[name]
	if o == nil || o.Pkg() == nil {
		return name.Name
	}
	return o.Pkg().Path() + "." + o.Name()
}

// constantTime reports whether a function does nothing but return whether
// subtle.ConstantTimeCompare is 1.
func (c *comparisons) constantTime(f *ast.FuncDecl) bool {
	if len(f.Body.List) != 1 {
		return false
	}
	r, ok := f.Body.List[0].(*ast.ReturnStmt)
	if !ok || len(r.Results) != 1 {
		return false
	}
	b, ok := r.Results[0].(*ast.BinaryExpr)
	if !ok || b.Op != token.EQL {
		return false
	}
	call, ok := b.X.(*ast.CallExpr)
	one := c.info.Types[b.Y].Value
	return ok && c.callee(call) == "crypto/subtle.ConstantTimeCompare" && one != nil && one.String() == "1"
}
