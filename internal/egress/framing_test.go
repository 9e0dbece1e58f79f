package egress

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var framed = []string{
	ok,
	"HTTP/1.1 204 No Content\r\n\r\n",
	"HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\n",
	"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 304 N\nContent-Length: 9\n\n",
	"HTTP/1.1 200\r\ncontent-length:0\r\nA: b\r\n\r\n",
	"HTTP/1.1 103 E\r\nLink: a\r\n\r\nHTTP/1.1 100 C\r\n\r\nHTTP/1.1 500 X\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0a;x=y\r\n0123456789\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: Chunked\r\nTrailer: A\r\n\r\n0\r\nA: b\r\n\r\n",
}

func TestSurplus(t *testing.T) {
	for _, answer := range framed {
		for split := range len(answer) {
			var f framing
			for range 3 { // as on a kept-alive connection
				require.False(t, f.surplus([]byte(answer[:split])), "%q %d", answer, split)
				require.False(t, f.surplus([]byte(answer[split:])))
				require.Equal(t, atEnd, f.at, "%q %d", answer, split)
			}
			require.False(t, f.surplus([]byte(answer[:split])))
			require.True(t, f.surplus([]byte(answer[split:]+"x")), "%q %d", answer, split)
			require.False(t, f.surplus([]byte("y")), "once is enough")
		}
		var f framing
		for i := range len(answer) {
			require.False(t, f.surplus([]byte{answer[i]}))
		}
		require.Equal(t, atEnd, f.at, "%q", answer)
	}
	for _, answer := range []string{
		"HTTP/1.1 101 S\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.0 200 OK\r\n\r\n", "SSH-2.0\r\n\r\n", "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\n\r\n",
	} {
		var f framing
		require.False(t, f.surplus([]byte(answer+"abcdefghijklmnop")), "%q", answer)
		require.Equal(t, lost, f.at, "%q", answer)
	}
}

func TestFramingHoldsLittle(t *testing.T) {
	var f framing
	for range 1 << 10 {
		require.False(t, f.surplus(bytes.Repeat([]byte("A: b\r\n"), 1000)))
	}
	require.Equal(t, lost, f.at)
	require.Empty(t, f.head)
}

func TestHeadsOfManyLines(t *testing.T) {
	head := func(lines int) string { // of so many line ends in all
		return "HTTP/1.1 200 OK\n" + strings.Repeat("A: b\n", lines-3) + "Content-Length: 0\n\n"
	}
	for _, answer := range []struct {
		text   string
		status int
	}{
		{head(headerLines), 200},
		{head(headerLines + 1), 0},
		{"HTTP/1.1 200 OK\n" + strings.Repeat("A:\n", 4*headerLines), 0}, // and no end
		{strings.Repeat("HTTP/1.1 103 E\nA:\n\n", headerLines/3-1) + head(4), 200},
		{strings.Repeat("HTTP/1.1 103 E\nA:\n\n", headerLines/3-1) + head(5), 0},
	} {
		for _, whole := range []bool{true, false} {
			r := serve(t, func(c net.Conn, n int64) bool {
				if whole {
					io.WriteString(c, answer.text)
				}
				for text := answer.text; !whole && text != ""; text = text[min(len(text), 700):] {
					io.WriteString(c, text[:min(len(text), 700)])
				}
				return true
			})
			c := newClient(t, local)
			for range 3 { // lines of one answer do not count for the next
				a := post(t, c, "http://"+r.host)
				require.Equal(t, answer.status, a.Status)
				if answer.status == 0 {
					require.Equal(t, AnswerTooLarge, a.Err)
				} else {
					require.EqualValues(t, 1, r.accepted.Load())
				}
			}
		}
	}
	var f framing
	require.False(t, f.surplus([]byte(head(headerLines+1)+"x")))
	require.True(t, f.long)
	require.Nil(t, f.head)
}

// FuzzFraming holds the framing against net/http's: wherever net/http reads a
// whole answer, both must agree on whether bytes are left.
func FuzzFraming(f *testing.F) {
	for _, answer := range framed {
		f.Add([]byte(answer), 5)
		f.Add([]byte(answer+"x"), 20)
		f.Add([]byte(answer+answer), 0)
	}
	f.Fuzz(func(t *testing.T, stream []byte, split int) {
		split = min(max(split, 0), len(stream))
		var whole, parts framing
		surplus := whole.surplus(stream)
		parts.surplus(stream[:split])
		if at := parts.at; at != atEnd {
			require.Equal(t, surplus, parts.surplus(stream[split:]) || parts.at == lost && surplus)
		}

		left, kept, readable := readAnswer(stream)
		folded := bytes.Contains(stream, []byte("\n ")) || bytes.Contains(stream, []byte("\n\t")) // RFC 9112 §5.2: obsolete
		if readable && kept && !folded && !whole.long {
			require.Equal(t, left > 0, surplus, "%d bytes left", left)
		}
	})
}

// readAnswer reads one final answer as net/http would and returns how many
// bytes follow, whether the connection would be kept, and whether it could be
// read at all.
func readAnswer(stream []byte) (left int, kept, readable bool) {
	r := bytes.NewReader(stream)
	br := bufio.NewReader(r)
	req := &http.Request{Method: http.MethodPost}
	for {
		answer, err := http.ReadResponse(br, req)
		if err != nil {
			return 0, false, false
		}
		if answer.StatusCode >= 100 && answer.StatusCode <= 199 && answer.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return 0, false, false
		}
		return br.Buffered() + r.Len(), !answer.Close && answer.StatusCode > 199, true
	}
}
