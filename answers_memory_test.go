package webhook_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/elido-app/webhook"
)

// liveMemory is what is in use after a collection, stacks included.
func liveMemory() int64 {
	runtime.GC()
	runtime.GC() // what a pool holds goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// held is how many attempts are open at once while memory is measured.
const held = 50

// TestMemoryOfAnAttempt holds attempts open where they cost most. Receivers are
// part of the process and of what is measured, which makes it no easier.
func TestMemoryOfAnAttempt(t *testing.T) {
	const most = 1 << 20
	line := strings.Repeat("a", 58)
	manyLines := "HTTP/1.1 200 OK\r\n" // 64 KiB in as many lines as there may be
	for i := range 980 {
		manyLines += fmt.Sprintf("%03d: %s\r\n", i, line)
	}
	tinyLines := "HTTP/1.1 200 OK\r\n"
	for i := range 980 {
		tinyLines += fmt.Sprintf("%03d:\n", i)
	}
	longLine := "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", 64<<10-100)
	stall := func(text string) replier {
		return func(c net.Conn, n int64) bool {
			io.WriteString(c, text)
			return hold(c, n)
		}
	}
	headers := map[string]string{}
	for i := range 32 {
		headers[fmt.Sprintf("X-%d", i)] = strings.Repeat("v", 4000)
	}
	for _, c := range []struct {
		name  string
		at    time.Duration // when to look
		reply replier
		tls   bool
	}{
		{"silence", time.Second, hold, false},
		{"many lines, and no end", time.Second, stall(manyLines), false},
		{"a long line, and no end", time.Second, stall(longLine), false},
		{"many 103s, and no end", time.Second, stall(strings.Repeat("HTTP/1.1 103 E\r\nA: "+line+"\r\n\r\n", 700)), false},
		{"many lines and a body that stalls", 500 * time.Millisecond, stall(manyLines + "\r\n" + strings.Repeat("b", 63<<10)), false},
		{"tiny lines and chunks", 500 * time.Millisecond, stall(tinyLines + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("1\r\nb\r\n", 60<<10)), false},
		{"a long line and a long body", 500 * time.Millisecond, stall(longLine + "\r\n\r\n" + strings.Repeat("b", 63<<10)), false},
		{"a long chain, and silence", time.Second, hold, true},
		{"a long chain, many lines and a body", 500 * time.Millisecond, stall(manyLines + "\r\n" + strings.Repeat("b", 63<<10)), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			roots := x509.NewCertPool()
			config := webhook.Config{Logger: quiet(), Egress: webhook.Egress{RootCAs: roots}}
			piped(t, config, func(w *world, p *pipes) {
				p.handle = p.handler(c.reply)
				path := strings.Repeat("p", 2000)
				for i := range held {
					url := fmt.Sprintf("http://127.0.0.1:%d/%s", i+1, path)
					if c.tls {
						url = fmt.Sprintf("https://127.0.0.1:%d/%s", i+1, path)
					}
					w.endpoint(webhook.EndpointParams{URL: url, Headers: headers})
				}
				if c.tls {
					ca := newAuthority(w)
					roots.AddCert(ca.cert)
					var certificates []tls.Certificate
					for range held { // each its own, or crypto/tls would keep them once
						certificates = append(certificates, ca.chain(w, "hooks.example", 30<<10))
					}
					handle := p.handle
					p.handle = func(conn net.Conn) {
						handle(tls.Server(conn, tlsConfig(certificates[p.accepted.Load()-1])))
					}
				}
				w.run()
				synctest.Wait()
				before := liveMemory()
				w.publish(webhook.Event{})
				w.sleep(c.at)
				require.EqualValues(w, held, p.accepted.Load())
				require.EqualValues(w, held, p.requests.Load())
				each := (liveMemory() - before) / held
				w.Logf("%d KiB for each attempt", each>>10)
				require.LessOrEqual(w, each, int64(most))

				w.sleep(15 * time.Second)
				w.stop()
				p.group.Wait()
				page, err := w.Deliveries(w.Context(), webhook.DeliveryQuery{WorkspaceID: workspace})
				require.NoError(w, err)
				require.Len(w, page.Deliveries, held)
				for _, d := range page.Deliveries {
					require.Equal(w, 1, d.Attempts)
				}
				left := (liveMemory() - before) / held
				w.Logf("%d KiB afterwards", left>>10)
				require.LessOrEqual(w, left, int64(300<<10), "log rows, with headers of 128 KiB and an answer of 16 KiB")
			})
		})
	}
}

// chain is a certificate with others behind it that have nothing to do with it,
// of so many bytes in all. No two of those are equal; nobody checks who signed
// them.
func (a *anAuthority) chain(t testing.TB, name string, size int) tls.Certificate {
	cert := a.issue(t, name, time.Now().Add(time.Hour))
	serial := big.NewInt(0x7123456789abcdef)
	template := &x509.Certificate{SerialNumber: serial, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	for range 1000 { // 4 bytes each; nothing else is parsed into as much
		template.UnknownExtKeyUsage = append(template.UnknownExtKeyUsage, asn1.ObjectIdentifier{1, 2, 3})
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	require.NoError(t, err)
	at := bytes.Index(der, serial.Bytes())
	require.Positive(t, at)
	for size -= len(cert.Certificate[0]); size > len(der); size -= len(der) {
		other := bytes.Clone(der)
		_, _ = rand.Read(other[at+1 : at+8])
		cert.Certificate = append(cert.Certificate, other)
	}
	return cert
}

// What an answer makes the sender allocate in all, garbage included: a bomb that
// was unpacked, or a gibibyte that was read, would show.
func TestFloodsAllocateLittle(t *testing.T) {
	bomb := gzipBomb()
	for name, reply := range map[string]replier{
		"1 GiB":       flood("HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n", "abcdefgh"),
		"until close": flood("HTTP/1.1 200 OK\r\n\r\n", "abcdefgh"),
		"gzip bomb":   answering(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(bomb), bomb)),
		"headers":     flood("HTTP/1.1 200 OK\r\n", "A: b\r\n"),
		"103s":        flood("", "HTTP/1.1 103 E\r\nLink: <a>\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			piped(t, webhook.Config{Logger: quiet()}, func(w *world, p *pipes) {
				p.handle = p.handler(reply)
				w.endpoint(webhook.EndpointParams{URL: pipeURL})
				w.again(workspace) // what is made once
				var before, now runtime.MemStats
				runtime.ReadMemStats(&before)
				w.again(workspace)
				runtime.ReadMemStats(&now)
				allocated := now.TotalAlloc - before.TotalAlloc
				w.Logf("%d KiB allocated", allocated>>10)
				require.LessOrEqual(w, allocated, uint64(1<<20))
			})
		})
	}
}

// Nor does a nameserver that says all that a message holds.
func TestLongNameserverAnswers(t *testing.T) {
	var many []netip.Addr
	for i := range 4000 {
		many = append(many, netip.AddrFrom4([4]byte{8, 8, byte(i >> 8), byte(i)}))
	}
	for i := range 2300 {
		many = append(many, netip.AddrFrom16([16]byte{0x26, 14: byte(i >> 8), 15: byte(i)}))
	}
	dns := serveNames(t, func(string) []netip.Addr { return many })
	w := dispatcherOnResolver(t, webhook.Config{Egress: webhook.Egress{Resolver: dns.resolver()}, Logger: quiet()})
	var grown int64
	before := liveMemory()
	dialled := 0
	w.DialWith(func(ctx context.Context, _, _ string) (net.Conn, error) {
		if dialled++; dialled == 1 {
			grown = liveMemory() - before
		}
		return nil, io.ErrUnexpectedEOF
	})
	_, a := w.attempt(1, webhook.EndpointParams{URL: "https://many.example/"})
	require.NotEmpty(t, a.Error)
	require.Equal(t, 8, dialled)
	t.Logf("%d KiB", grown>>10)
	require.LessOrEqual(t, grown, int64(1<<20))
}
