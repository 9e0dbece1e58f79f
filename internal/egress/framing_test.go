package egress

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
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
		if readable && kept && !folded {
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
