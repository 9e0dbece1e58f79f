package egress

import (
	"bytes"
	"io"
	"math"
	"net"
	"strconv"
	"sync/atomic"
)

// An exactConn fails when an answer's head has more lines than net/http should
// be given, and gives up its connection when a receiver sends more than one
// answer to one request: a body after a 204, or bytes beyond Content-Length, or
// anything before it was asked.
//
// net/http returns a connection to its pool before it looks for such bytes. A
// request that is quick to take the connection gets them as its answer: at
// best it fails on another's junk, at worst it counts as delivered. Reporting
// the end of the stream together with the bytes makes net/http drop the
// connection as soon as the answer is read. What comes later, to a connection
// that waits in the pool, net/http would print to the standard log.
type exactConn struct {
	net.Conn
	framing framing
	asked   atomic.Bool // something was written since the last answer
}

func (c *exactConn) Write(p []byte) (int, error) {
	c.asked.Store(true)
	return c.Conn.Write(p)
}

func (c *exactConn) Read(p []byte) (int, error) {
	if c.framing.long {
		return overrun(p), nil
	}
	n, err := c.Conn.Read(p)
	if n > 0 && !c.asked.Load() {
		if c.framing.at == atEnd {
			return 0, io.EOF // a request that just takes the connection gets another
		}
		return 0, AnswerMalformed
	}
	surplus := c.framing.surplus(p[:n])
	if c.framing.at == atEnd {
		c.asked.Store(false)
	}
	switch {
	case c.framing.long:
		return overrun(p), nil
	case surplus && err == nil:
		err = io.EOF
	}
	return n, err
}

// overrun makes the rest of a head a line without end, at which net/http says
// by itself that the head is too large. (It may take an error for the end of a
// line, and read on.)
func overrun(p []byte) int {
	for i := range p {
		p[i] = 'x'
	}
	return len(p)
}

// A framing follows answers to POSTs as they stream past, to know where each
// ends (RFC 9112 §6.3). It judges nothing: what it does not understand it
// leaves to net/http, and looks no further.
type framing struct {
	at    position
	left  int64  // of a body, or of a chunk with its line end
	chunk int64  // chunk size so far
	sized bool   // chunk has a digit
	head  []byte // of a head that came in pieces
	lines int    // of heads so far, those of 1xx answers included
	long  bool   // there were too many
	blank bool   // the trailer line so far is empty
}

type position uint8

const (
	atHead position = iota
	inBody
	inChunkSize
	inChunkLine // behind the size
	inChunk
	inTrailer
	atEnd
	lost // the answer ends with the connection, or is not understood
)

// surplus takes the next bytes and reports whether some of them lie behind the
// end of an answer. Bytes of a later call may be the next answer.
func (f *framing) surplus(p []byte) bool {
	if f.at == atEnd && len(p) > 0 {
		*f = framing{head: f.head[:0]}
	}
	for len(p) > 0 {
		switch f.at {
		case atHead:
			p = f.takeHead(p)
		case inBody, inChunk:
			n := min(f.left, int64(len(p)))
			f.left -= n
			p = p[n:]
			if f.left == 0 {
				f.next()
			}
		case inChunkSize, inChunkLine, inTrailer:
			f.takeByte(p[0])
			p = p[1:]
		case atEnd:
			f.at = lost
			return true
		case lost:
			return false
		}
	}
	return false
}

func (f *framing) next() {
	if f.at == inBody {
		f.at = atEnd
		return
	}
	f.at, f.chunk, f.sized = inChunkSize, 0, false
}

// takeByte reads a chunk's size, the rest of that line, and the trailer.
func (f *framing) takeByte(b byte) {
	switch f.at {
	case inChunkSize:
		digit := hexDigit(b)
		switch {
		case digit >= 0 && f.chunk < 1<<56:
			f.chunk = f.chunk<<4 | int64(digit)
			f.sized = true
		case !f.sized || digit >= 0:
			f.at = lost
		default:
			f.at = inChunkLine
		}
	case inChunkLine:
		switch {
		case b != '\n':
		case f.chunk == 0:
			f.at, f.blank = inTrailer, true
		default:
			f.at, f.left = inChunk, f.chunk+2
		}
	case inTrailer:
		switch {
		case b == '\n' && f.blank:
			f.at = atEnd
		case b == '\n':
			f.blank = true
		case b != '\r':
			f.blank = false
		}
	}
}

func hexDigit(b byte) int {
	switch {
	case b >= '0' && b <= '9':
		return int(b - '0')
	case b|0x20 >= 'a' && b|0x20 <= 'f':
		return int(b|0x20-'a') + 10
	}
	return -1
}

// takeHead takes up to the end of a head and returns the rest of p.
func (f *framing) takeHead(p []byte) []byte {
	head, from := p, 0
	if len(f.head) > 0 {
		from = max(0, len(f.head)-len("\n\r"))
		f.head = append(f.head, p...)
		head = f.head
	}
	end := headEnd(head, from)
	if end < 0 {
		if len(f.head) == 0 {
			f.head = append(f.head, p...)
		}
		f.count(p)
		if len(f.head) > headerLimit {
			f.at, f.head = lost, nil
		}
		return nil
	}
	rest := p[len(p)-(len(head)-end):]
	f.count(p[:len(p)-len(rest)])
	if !f.long {
		f.at, f.left = readHead(head[:end])
	}
	f.head = f.head[:0]
	if cap(f.head) > 4<<10 {
		f.head = nil // an idle connection need not hold on to it
	}
	return rest
}

// count counts lines of heads.
func (f *framing) count(p []byte) {
	if f.lines += bytes.Count(p, []byte("\n")); f.lines > headerLines {
		f.at, f.long, f.head = lost, true, nil
	}
}

// headEnd returns the index behind the empty line that ends a head, or -1.
func headEnd(head []byte, from int) int {
	for {
		i := bytes.IndexByte(head[from:], '\n')
		if i < 0 {
			return -1
		}
		from += i + 1
		switch rest := head[from:]; {
		case bytes.HasPrefix(rest, []byte("\n")):
			return from + 1
		case bytes.HasPrefix(rest, []byte("\r\n")):
			return from + 2
		}
	}
}

// readHead returns what follows a head.
func readHead(head []byte) (at position, left int64) {
	line, head, _ := bytes.Cut(head, []byte("\n"))
	version, status, _ := bytes.Cut(line, []byte(" "))
	status = bytes.TrimLeft(status, " ")
	if len(version) != len("HTTP/1.1") || len(status) < 3 {
		return lost, 0
	}
	switch code := string(status[:3]); {
	case code == "101":
		return lost, 0
	case code[0] == '1':
		return atHead, 0
	case code == "204", code == "304":
		return atEnd, 0
	}
	at = lost
	for len(head) > 0 && at != inChunkSize {
		line, head, _ = bytes.Cut(head, []byte("\n"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case len(name) == len("content-length") && bytes.EqualFold(name, []byte("content-length")):
			n, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
			if err != nil || n < 0 || n == math.MaxInt64 {
				return lost, 0
			}
			if at, left = inBody, n; n == 0 {
				at = atEnd
			}
		case len(name) == len("transfer-encoding") && bytes.EqualFold(name, []byte("transfer-encoding")):
			if string(version) >= "HTTP/1.1" { // RFC 9112 §6.1
				at, left = inChunkSize, 0
			}
		}
	}
	return at, left
}
