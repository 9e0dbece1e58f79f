package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/elido-app/webhook/internal/egress"
	"github.com/elido-app/webhook/internal/queue"
)

// Config is how a Dispatcher behaves. Every zero field is its documented
// default.
type Config struct {
	// Catalog holds the event types. Defaults to DefaultCatalog. New takes a
	// copy.
	Catalog *Catalog
	// Envelope makes the bodies. Defaults to EnvelopeV1.
	Envelope Envelope
	// Signer signs requests and replaces secrets.
	Signer Signer
	// Retry says how often a delivery is attempted, and when.
	Retry RetryPolicy
	// Health says what an endpoint's failures lead to. Defaults to nothing.
	Health HealthPolicy
	// Observer, if set, is told what happens.
	Observer Observer
	// Egress says which addresses requests may go to, and how.
	Egress Egress
	// Channels says where messages to chats go, and how fast.
	Channels Channels
	// Keys encrypts secrets in the store.
	Keys Keyring
	// Retention says when finished deliveries leave the log.
	Retention Retention
	// Logger gets one line for each change of state. Defaults to slog.Default().
	Logger *slog.Logger

	// AllowEndpoint, if set, is asked before an endpoint is created or imported,
	// AllowPublish before events are published: for limits of the host's own.
	// What they return is returned as it is.
	AllowEndpoint func(ctx context.Context, p EndpointParams) error
	AllowPublish  func(ctx context.Context, events []Event) error

	// OrderingKey, if set, gives the ordering key of an event whose publisher gave
	// none, from its type and scrubbed data; empty for none. It must be safe for
	// concurrent use.
	OrderingKey func(eventType string, data json.RawMessage) string
	// Trace, if set, names the trace that an event is published in, from the
	// publisher's context: a traceparent (W3C Trace Context, section 3.2). It is
	// stored with the event, and what is none is left out. Observers get it with
	// each attempt.
	Trace func(ctx context.Context) string
	// SendTrace sends it to receivers, in the traceparent header.
	SendTrace bool

	// Workers is how many requests may be open at once, not counting those
	// unanswered for more than 250 ms. Defaults to 64.
	Workers int
	// SlowRequests is how many of those others may be open. Defaults to 1,024.
	SlowRequests int
	// MaxInFlight is how many requests of this process may be open to one
	// endpoint that has no such setting itself. Defaults to 8.
	MaxInFlight int
	// MaxHeldBytes bounds, about, the payloads held in memory, not counting those
	// of slow requests. Defaults to 64 MiB.
	MaxHeldBytes int

	// Poll is how often the store is asked for work that other processes left
	// there. Defaults to 2 s.
	Poll time.Duration
	// Timeout is how long an answer's status and headers may take. Defaults to
	// 10 s; at most 1 minute.
	Timeout time.Duration
	// Lease is how long a claimed delivery is this process's. Defaults to three
	// times Timeout, and no less than 30 s; it must not be less than three times
	// Timeout, nor than Timeout and 7 s. A store whose calls take longer than Lease
	// less Timeout and 5 s never gets to start a request.
	Lease time.Duration
	// Grace is how long Run may take to stop. Running attempts may go on for most
	// of it; the last quarter, at most 1 s, is for writing down how it ended.
	// Defaults to 15 s; negative cuts them at once.
	Grace time.Duration

	// MaxBody is the largest body of one event, in bytes. Defaults to 256 KiB.
	MaxBody int
	// MaxBatch is the most that the bodies of one publish may add up to, in
	// bytes. Defaults to 16 MiB.
	MaxBatch int

	// DropResponses keeps answers' bodies out of the log.
	DropResponses bool
}

// Egress says which addresses requests may go to, and how. The zero value
// allows public addresses alone, by https, with the system's resolver and root
// certificates, and no proxy: never one from the environment.
type Egress struct {
	// AllowLoopback permits 127.0.0.0/8 and ::1, and plain http to localhost,
	// 127.0.0.1 and [::1]. For local development.
	AllowLoopback bool
	// AllowPrefixes permits addresses that are not public.
	AllowPrefixes []netip.Prefix
	// Resolver looks up host names. Defaults to net.DefaultResolver.
	Resolver Resolver
	// Proxy names the proxy of a request, or nil. A proxy is trusted: what it
	// resolves and connects to is not checked.
	Proxy func(*http.Request) (*url.URL, error)
	// RootCAs verifies servers. Defaults to the system's.
	RootCAs *x509.CertPool
	// Certificates are offered to servers that ask for one.
	Certificates []tls.Certificate
	// Transport, in tests, answers requests instead of the network.
	Transport http.RoundTripper
}

// Resolver looks up host names; *net.Resolver is one. LookupNetIP must honour
// ctx and be safe for concurrent use.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

func (e Egress) options(idlePerHost int) egress.Options {
	return egress.Options{
		AllowLoopback: e.AllowLoopback,
		AllowPrefixes: e.AllowPrefixes,
		Resolver:      e.Resolver,
		Proxy:         e.Proxy,
		RootCAs:       e.RootCAs,
		Certificates:  e.Certificates,
		Transport:     e.Transport,
		IdlePerHost:   idlePerHost,
	}
}

// Retention says when finished deliveries leave the log. The zero value keeps
// them. Pending ones always stay.
type Retention struct {
	// MaxAge is how long a delivery is kept after it was completed.
	MaxAge time.Duration
	// MaxPerEndpoint is how many are kept, the newest.
	MaxPerEndpoint int
}

const bodyTime = time.Second // for an answer's body, after its headers

func (c Config) withDefaults() (Config, error) {
	if c.Catalog == nil {
		c.Catalog = DefaultCatalog()
	} else {
		c.Catalog = c.Catalog.clone()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if err := c.Catalog.checkPatterns(); err != nil {
		return c, err
	}
	var err error
	if c.Signer, err = c.Signer.withDefaults(); err != nil {
		return c, err
	}
	if c.Retry, err = c.Retry.withDefaults(); err != nil {
		return c, err
	}
	if c.Health, err = c.Health.withDefaults(); err != nil {
		return c, err
	}
	if c.Channels, err = c.Channels.withDefaults(c.Egress); err != nil {
		return c, err
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Grace == 0 {
		c.Grace = 15 * time.Second
	}
	for _, f := range []struct {
		name             string
		value            *int
		otherwise, least int
		most             int
	}{
		{"Workers", &c.Workers, 64, 1, 10_000},
		{"SlowRequests", &c.SlowRequests, 1024, 1, 100_000},
		{"MaxInFlight", &c.MaxInFlight, 8, 1, maxInFlightMost},
		{"MaxHeldBytes", &c.MaxHeldBytes, 64 << 20, 1 << 20, 1 << 40},
		{"MaxBody", &c.MaxBody, 256 << 10, 256, 64 << 20},
		{"MaxBatch", &c.MaxBatch, 16 << 20, 256, 256 << 20},
		{"Retention.MaxPerEndpoint", &c.Retention.MaxPerEndpoint, 0, 0, 1 << 40},
	} {
		if *f.value == 0 {
			*f.value = f.otherwise
		}
		if *f.value < f.least || *f.value > f.most {
			return c, &InvalidError{Field: f.name, Rule: fmt.Sprintf("must be between %d and %d", f.least, f.most)}
		}
	}
	for _, f := range []struct {
		name            string
		value           *time.Duration
		otherwise       time.Duration
		shortest, limit time.Duration
	}{
		{"Poll", &c.Poll, 2 * time.Second, 10 * time.Millisecond, time.Hour},
		{"Timeout", &c.Timeout, 0, 10 * time.Millisecond, time.Minute},
		{"Lease", &c.Lease, max(3*c.Timeout, 30*time.Second), max(3*c.Timeout, c.Timeout+queue.StartMargin+2*time.Second), time.Hour},
		{"Grace", &c.Grace, 0, -time.Hour, time.Hour},
		{"Retention.MaxAge", &c.Retention.MaxAge, 0, 0, 100 * 365 * 24 * time.Hour},
	} {
		if *f.value == 0 {
			*f.value = f.otherwise
		}
		if *f.value < f.shortest || *f.value > f.limit {
			return c, &InvalidError{Field: f.name, Rule: fmt.Sprintf("must be between %v and %v", f.shortest, f.limit)}
		}
	}
	return c, nil
}
