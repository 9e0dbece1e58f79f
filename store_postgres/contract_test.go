package postgresstore

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook/store"
	"github.com/elido-app/webhook/store/storetest"
)

func TestContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return openCase(t, hasty(t), Options{}) })
}

// openCase opens an empty store for a case, which runs beside others unless it is
// about what something costs: that has a database of its own, where no transaction
// of another test keeps rows from being removed.
func openCase(t *testing.T, url string, o Options) *Store {
	if strings.Contains(t.Name(), "/cost/") {
		return openAlone(t, url, o)
	}
	t.Parallel()
	return openURL(t, url, o)
}

// hasty returns the shared server's URL for tests that need not wait for the disk.
func hasty(t testing.TB) string { return with(serverURL(t), "synchronous_commit=off") }

// Every transaction may get another connection of the server's, and does: there
// are fewer than callers. Nothing is prepared; the simple protocol, which some
// proxies need, differs most.
func TestContractThroughAProxy(t *testing.T) {
	proxy := startPgBouncer(t)
	storetest.Run(t, func(t *testing.T) store.Store {
		return openCase(t, with(proxy, "default_query_exec_mode=simple_protocol"), Options{TransactionPooling: true})
	})
	t.Run("by default", func(t *testing.T) {
		st := openURL(t, proxy, Options{TransactionPooling: true})
		createEndpoint(t, st)
		mustPublish(t, st, "evt_1")
		now := time.UnixMilli(2000)
		r, err := st.Claim(t.Context(), room(1, now, 5))
		require.NoError(t, err)
		require.Len(t, r.Leases, 1)
		recorded, err := st.Record(t.Context(), store.RecordParams{Now: now, Outcomes: []store.Outcome{{
			DeliveryID: r.Leases[0].DeliveryID, EndpointID: r.Leases[0].Target.EndpointID, Token: 1, Status: store.StatusDelivered,
			Attempt: store.Attempt{Headers: map[string]string{"A": "b"}, Response: []byte("\x00\xff"), ResponseCut: true},
		}}})
		require.NoError(t, err)
		require.Empty(t, recorded.Stale)
	})
	t.Run("watch", func(t *testing.T) {
		st := openURL(t, proxy, Options{TransactionPooling: true})
		require.ErrorIs(t, st.Watch(t.Context(), func() {}), errors.ErrUnsupported)
	})
}

// startPgBouncer starts a proxy before the shared server and returns its URL.
func startPgBouncer(t *testing.T) string {
	t.Helper()
	bin, err := exec.LookPath("pgbouncer")
	if err != nil {
		if bin = "/usr/sbin/pgbouncer"; !exists(bin) {
			missing(t, "pgbouncer")
		}
	}
	target, err := url.Parse(serverURL(t))
	require.NoError(t, err)
	port := freePort(t)
	dir := t.TempDir()
	password := ""
	if p, ok := target.User.Password(); ok {
		password = " password=" + p
	}
	config := fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s%s connect_query='SET synchronous_commit = off'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
ignore_startup_parameters = extra_float_digits,search_path
logfile = %s/log
`, target.Hostname(), or(target.Port(), "5432"), target.User.Username(), password, port, dir)
	file := filepath.Join(dir, "pgbouncer.ini")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	cmd := exec.Command(bin, file)
	if os.Getuid() == 0 { // it refuses to run as root
		c := unprivileged()
		require.NotNil(t, c, "a user to run pgbouncer as")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c}
		for _, path := range []string{dir, file} {
			require.NoError(t, os.Chown(path, int(c.Uid), int(c.Gid)))
		}
		// Its parents are the test's alone.
		for up := filepath.Dir(dir); up != os.TempDir() && len(up) > 1; up = filepath.Dir(up) {
			require.NoError(t, os.Chmod(up, 0o711))
		}
	}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	proxy := fmt.Sprintf("postgres://any@127.0.0.1:%d%s?sslmode=disable", port, target.Path)
	require.Eventually(t, func() bool { return reachable(with(proxy, "default_query_exec_mode=exec")) == nil },
		30*time.Second, 50*time.Millisecond, "pgbouncer does not answer")
	return proxy
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	n, err := strconv.Atoi(port)
	require.NoError(t, err)
	return n
}
