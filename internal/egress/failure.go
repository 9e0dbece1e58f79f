package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/textproto"
	"os"
	"strings"
	"syscall"
)

// A Failure is why a request has no answer. Its text is fixed: it is fit for
// the endpoint's owner and holds nothing of the request, the address or the
// answer. Failures are compared with ==.
type Failure uint8

const (
	RequestFailed        Failure = iota + 1 // anything the others do not name
	Timeout                                 // the context ended, its cause a deadline, after there was a connection
	Cancelled                               // the context ended otherwise
	AddressRefused                          // the name resolves to an address that is not allowed
	NameNotFound                            // the name does not exist or has no address
	LookupFailed                            // the resolver failed
	ConnectTimeout                          // no connection in time
	ConnectionRefused                       // nobody listens there
	Unreachable                             // no route
	ConnectFailed                           // any other fault of the connecting
	ConnectionReset                         // reset after connecting
	ConnectionClosed                        // closed before status line and headers were whole
	CertificateUntrusted                    // no path to a trusted root
	CertificateExpired                      // expired or not valid yet
	CertificateHost                         // not for this host
	CertificateInvalid                      // any other fault of a certificate
	HandshakeFailed                         // any other fault of TLS
	AnswerTooLarge                          // headers over the limit, 1xx answers included
	AnswerMalformed                         // not HTTP/1.x
	ProxyFailed                             // the proxy gave no connection
	ChainTooLong                            // the server's part of the TLS handshake is over the limit
)

var failureTexts = [...]string{
	RequestFailed:        "the request failed",
	Timeout:              "no answer within the time limit",
	Cancelled:            "the request was cancelled",
	AddressRefused:       "the address is not allowed",
	NameNotFound:         "the host name was not found",
	LookupFailed:         "the host name could not be looked up",
	ConnectTimeout:       "no connection within the time limit",
	ConnectionRefused:    "connection refused",
	Unreachable:          "the host cannot be reached",
	ConnectFailed:        "connecting failed",
	ConnectionReset:      "connection reset",
	ConnectionClosed:     "connection closed before an answer",
	CertificateUntrusted: "TLS: the certificate is not trusted",
	CertificateExpired:   "TLS: the certificate has expired or is not valid yet",
	CertificateHost:      "TLS: the certificate is for another host",
	CertificateInvalid:   "TLS: the certificate is not valid",
	HandshakeFailed:      "TLS: the handshake failed",
	AnswerTooLarge:       "the answer's headers are too large",
	AnswerMalformed:      "the answer is not valid HTTP",
	ProxyFailed:          "the proxy gave no connection",
	ChainTooLong:         "TLS: the certificate chain is too long",
}

func (f Failure) Error() string {
	if int(f) < len(failureTexts) && failureTexts[f] != "" {
		return failureTexts[f]
	}
	return failureTexts[RequestFailed]
}

// Timeout reports whether time ran out, in net.Error's manner.
func (f Failure) Timeout() bool { return f == Timeout || f == ConnectTimeout }

// handshakeError marks a fault as one of the TLS handshake.
type handshakeError struct{ err error }

func (e handshakeError) Error() string { return HandshakeFailed.Error() }
func (e handshakeError) Unwrap() error { return e.err }

// classify reduces a transport's error to a Failure. ctx is the request's.
func classify(ctx context.Context, err error) Failure {
	// Our own verdicts come first: they are exact even when the context
	// ended in the same moment.
	if f, ok := errors.AsType[Failure](err); ok {
		return f
	}
	if ctx.Err() != nil {
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			return Timeout
		}
		return Cancelled
	}
	if errors.Is(err, context.Canceled) { // by Close
		return Cancelled
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "proxyconnect" && !isTimeout(err) {
		return ProxyFailed // a receiver's owner would take it for theirs otherwise
	}
	if f := classifyTLS(err); f != 0 {
		return f
	}
	if f := classifyNet(err); f != 0 {
		return f
	}
	return classifyHTTP(err)
}

func classifyTLS(err error) Failure {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if invalid.Reason == x509.Expired {
			return CertificateExpired
		}
		return CertificateInvalid
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return CertificateUntrusted
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return CertificateHost
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return CertificateInvalid
	}
	if _, ok := errors.AsType[handshakeError](err); ok {
		if isTimeout(err) {
			return ConnectTimeout
		}
		return HandshakeFailed
	}
	// TLS 1.3 refuses a client certificate only after the handshake.
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return HandshakeFailed
	}
	return 0
}

func classifyNet(err error) Failure {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return ConnectionRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return Unreachable
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return ConnectionReset
	}
	op, ok := errors.AsType[*net.OpError](err)
	dialling := ok && op.Op == "dial"
	switch {
	case isTimeout(err) && dialling:
		return ConnectTimeout
	case isTimeout(err):
		return Timeout
	case dialling:
		return ConnectFailed
	case ok:
		return ConnectionReset
	}
	return 0
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout() || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// classifyHTTP tells net/http's own errors apart. Some have no type and can be
// told by their text only; if a text changes, the failure is named less
// exactly, and a test says so.
func classifyHTTP(err error) Failure {
	if _, ok := errors.AsType[textproto.ProtocolError](err); ok {
		return AnswerMalformed
	}
	text := err.Error()
	switch {
	case strings.Contains(text, "response headers exceeded"):
		return AnswerTooLarge
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		strings.Contains(text, "server closed idle connection"):
		return ConnectionClosed
	case strings.Contains(text, "malformed HTTP"), strings.Contains(text, "transport connection broken"),
		strings.Contains(text, "readLoopPeekFail"): // bytes nobody asked for
		return AnswerMalformed
	}
	return RequestFailed
}

// lookupFailure reduces a resolver's error to a Failure. ctx is the dial's.
func lookupFailure(ctx context.Context, err error) Failure {
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return NameNotFound
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return Cancelled
	case ctx.Err() != nil, isTimeout(err):
		return ConnectTimeout
	}
	return LookupFailed
}
