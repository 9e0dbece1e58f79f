package postgresstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// testServer is the URL of the server that tests share: that of
// WEBHOOK_TEST_POSTGRES, or one on 127.0.0.1:5432, or a private one if the
// binaries are installed. Empty if there is none of these.
var testServer string

func TestMain(m *testing.M) {
	if os.Getenv(childURL) != "" {
		if err := runChild(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(func() int {
		stop := findServer()
		defer stop()
		defer dropSchemas()
		return m.Run()
	}())
}

func findServer() (stop func()) {
	stop = func() {}
	if testServer = os.Getenv("WEBHOOK_TEST_POSTGRES"); testServer != "" {
		return stop
	}
	for _, url := range []string{
		"postgres://root@127.0.0.1:5432/test?sslmode=disable", "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable",
	} {
		if reachable(url) == nil {
			testServer = url
			return stop
		}
	}
	s, err := startServer()
	if err != nil {
		fmt.Fprintln(os.Stderr, "no PostgreSQL server for the tests:", err)
		return stop
	}
	testServer = s.url("")
	return s.remove
}

func reachable(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// missing skips a test for want of something that is there where it counts.
func missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("no %s, which these tests need", what)
	}
	t.Skipf("no %s: set WEBHOOK_TEST_POSTGRES to the URL of a server, or install PostgreSQL", what)
}

var schemas struct {
	mu   sync.Mutex
	made int
	free []string // migrated and empty
}

// newSchemaName returns the name of a schema that no other test uses, and drops it
// at the end.
func newSchemaName(t testing.TB, url string) string {
	t.Helper()
	schemas.mu.Lock()
	schemas.made++
	name := fmt.Sprintf("%s%d", schemaPrefix(), schemas.made)
	schemas.mu.Unlock()
	t.Cleanup(func() { _ = execute(url, `DROP SCHEMA IF EXISTS "`+name+`" CASCADE`) })
	return name
}

func schemaPrefix() string { return fmt.Sprintf("test_%d_", os.Getpid()) }

// execute runs statements on a connection of their own.
func execute(url string, statements ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// emptySchema returns a schema of the shared server with empty tables. As making
// them takes long, they are emptied and used again by the next test.
func emptySchema(t testing.TB) string {
	t.Helper()
	schemas.mu.Lock()
	var name string
	if n := len(schemas.free); n > 0 {
		name, schemas.free = schemas.free[n-1], schemas.free[:n-1]
		schemas.mu.Unlock()
	} else {
		schemas.made++
		name = fmt.Sprintf("%s%d", schemaPrefix(), schemas.made)
		schemas.mu.Unlock()
		require.NoError(t, Options{Schema: name}.Migrate(t.Context(), openPool(t, serverURL(t))))
	}
	t.Cleanup(func() {
		if t.Failed() {
			return // what it left may be of interest to nobody, but is not to be trusted
		}
		if empty(testServer, name) == nil {
			schemas.mu.Lock()
			schemas.free = append(schemas.free, name)
			schemas.mu.Unlock()
		}
	})
	return name
}

// empty deletes all that a schema's tables hold. Ids start at 1 again.
func empty(url, schema string) error {
	in := newSchema(schema)
	statements := []string{
		`SELECT setval('webhook_delivery_ids', 1, false)`,
		`UPDATE webhook_counter SET revision = revision + 1`, // what is cached is over
	}
	for _, table := range tables {
		switch table {
		case "webhook_counter", "webhook_locks", "webhook_delivery_ids":
		default:
			statements = append(statements, `DELETE FROM `+table)
		}
	}
	for i := range statements {
		statements[i] = in.qualify(statements[i])
	}
	return execute(url, strings.Join(statements, ";")) // in one round trip
}

// dropSchemas drops what emptySchema made.
func dropSchemas() {
	for n := range schemas.made {
		_ = execute(testServer, fmt.Sprintf(`DROP SCHEMA IF EXISTS "%s%d" CASCADE`, schemaPrefix(), n+1))
	}
}

// serverURL returns the URL of the shared server.
func serverURL(t testing.TB) string {
	t.Helper()
	if testServer == "" {
		missing(t, "PostgreSQL server")
	}
	return testServer
}

// with adds a parameter to a URL.
func with(url, parameter string) string {
	if parameter == "" {
		return url
	}
	if strings.Contains(url, "?") {
		return url + "&" + parameter
	}
	return url + "?" + parameter
}

// openURL returns a new, empty store on the shared server, reached through url.
func openURL(t testing.TB, url string, o Options) *Store {
	t.Helper()
	o.Schema = emptySchema(t)
	st, err := o.Open(t.Context(), with(url, "pool_max_conns=10"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	return st
}

// openAlone opens a store on a database of its own, which is new: no other test
// has rows or transactions there. Who may not create one has it in a schema, like
// everybody else.
func openAlone(t testing.TB, address string, o Options) *Store {
	t.Helper()
	name := fmt.Sprintf("%salone_%d", schemaPrefix(), alone.Add(1))
	if err := execute(serverURL(t), `CREATE DATABASE "`+name+`"`); err != nil {
		t.Logf("no database of its own: %v", err)
		return openURL(t, address, o)
	}
	t.Cleanup(func() { _ = execute(testServer, `DROP DATABASE IF EXISTS "`+name+`" WITH (FORCE)`) })
	in := func(address string) string {
		u, err := url.Parse(address)
		require.NoError(t, err)
		u.Path = "/" + name
		return u.String()
	}
	require.NoError(t, Migrate(t.Context(), openPool(t, in(testServer))))
	st, err := o.Open(t.Context(), with(in(address), "pool_max_conns=10"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = st.Close() })
	return st
}

var alone atomic.Int64 // databases made

func openPool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), with(url, "pool_max_conns=10"))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// openNew returns a new, empty store.
func openNew(t testing.TB) *Store {
	t.Helper()
	return openURL(t, serverURL(t), Options{})
}

// server is a PostgreSQL server of the tests' own.
type server struct {
	dir, bin string
	port     int
	user     *syscall.Credential // the server refuses to run as root
}

// startServer starts a server from the binaries that are installed. It listens on
// 127.0.0.1 and in its directory.
func startServer() (*server, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if path, err := exec.LookPath("initdb"); err == nil {
		found = append(found, path)
	}
	if len(found) == 0 {
		return nil, errors.New("initdb is not installed")
	}
	slices.Sort(found)
	dir, err := os.MkdirTemp("", "postgres-test-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir, bin: filepath.Dir(found[len(found)-1])}
	if err := s.init(); err != nil {
		s.remove()
		return nil, err
	}
	return s, nil
}

func (s *server) init() error {
	if os.Getuid() == 0 {
		if s.user = unprivileged(); s.user == nil {
			return errors.New("there is no user to run it as")
		}
		if err := os.Chown(s.dir, int(s.user.Uid), int(s.user.Gid)); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	if err := s.run("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"); err != nil {
		return err
	}
	return s.start()
}

// unprivileged is a user other than root, or nil.
func unprivileged() *syscall.Credential {
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, _ := strconv.Atoi(u.Uid)
			gid, _ := strconv.Atoi(u.Gid)
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		}
	}
	return nil
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

func (s *server) start() error {
	options := fmt.Sprintf("-c port=%d -c listen_addresses=127.0.0.1 -c unix_socket_directories=%s -c max_connections=50", s.port, s.dir)
	return s.run("pg_ctl", "-D", s.data(), "-w", "-t", "60", "-l", filepath.Join(s.dir, "log"), "-o", options, "start")
}

// crash stops the server as a crash would, and starts it again.
func (s *server) crash() error {
	if err := s.stop(); err != nil {
		return err
	}
	return s.start()
}

func (s *server) stop() error {
	return s.run("pg_ctl", "-D", s.data(), "-w", "-t", "60", "-m", "immediate", "stop")
}

func (s *server) run(name string, args ...string) error {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.user}
	log, err := os.OpenFile(filepath.Join(s.dir, name+".out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd.Stdout, cmd.Stderr = log, log // no pipe, which the server would keep open
	if err := cmd.Run(); err != nil {
		out, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

func (s *server) url(parameters string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable%s", s.port, parameters)
}

func (s *server) remove() {
	_ = s.stop()
	_ = os.RemoveAll(s.dir)
}

// ownServer returns a server that the test may do anything to.
func ownServer(t testing.TB) *server {
	t.Helper()
	s, err := startServer()
	if err != nil {
		missing(t, "PostgreSQL binaries ("+err.Error()+")")
	}
	t.Cleanup(s.remove)
	return s
}
