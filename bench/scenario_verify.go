package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	stripe "github.com/stripe/stripe-go/v82/webhook"

	"github.com/elido-app/webhook/verify"
)

// Verify: what it costs a receiver to verify one request of 600 bytes, made
// ready beforehand: no reading, no parsing of the event.

type verifySpec struct {
	Rounds int           `json:"rounds"`
	Each   time.Duration `json:"each"`
}

type verifyResult struct {
	Label  string    `json:"label"`
	Nanos  []float64 `json:"nanos"`
	Allocs int64     `json:"allocs"`
	Bytes  int64     `json:"bytes"`
}

func verifyChild(_ context.Context, spec verifySpec) ([]verifyResult, error) {
	testing.Init()
	if err := flag.Set("test.benchtime", spec.Each.String()); err != nil {
		return nil, err
	}
	list, err := verifiers()
	if err != nil {
		return nil, err
	}
	results := make([]verifyResult, len(list))
	for range spec.Rounds {
		for i, v := range list {
			if err := v.once(); err != nil {
				return nil, fmt.Errorf("%s: %w", v.label, err)
			}
			b := testing.Benchmark(func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := v.once(); err != nil {
						b.Fatal(err)
					}
				}
			})
			if b.N == 0 {
				return nil, errors.New(v.label + ": failed")
			}
			r := &results[i]
			r.Label = v.label
			r.Nanos = append(r.Nanos, float64(b.T.Nanoseconds())/float64(b.N))
			r.Allocs, r.Bytes = b.AllocsPerOp(), b.AllocedBytesPerOp()
		}
	}
	return results, nil
}

const oursLabel = "webhook/verify"

func verifiers() ([]struct {
	label string
	once  func() error
}, error) {
	body, err := envelope(newData())
	if err != nil {
		return nil, err
	}
	now := time.Now()
	timestamp := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(benchSecret))
	_, _ = mac.Write([]byte(timestamp + "." + string(body)))
	sum := hex.EncodeToString(mac.Sum(nil))

	ours, err := verify.New(benchSecret)
	if err != nil {
		return nil, err
	}
	signature := "v1=" + sum
	elido := http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"Elido-Webhooks/1.0"},
		"X-Webhook-Event": {eventType}, "X-Webhook-Delivery": {"55120"}, "X-Webhook-Timestamp": {timestamp},
		"X-Elido-Signature": {signature}, "X-Webhook-Signature": {signature},
	}

	stripeHeader := "t=" + timestamp + ",v1=" + sum // signed over the same

	standard, err := standardwebhooks.NewWebhook(benchSecret)
	if err != nil {
		return nil, err
	}
	standardSignature, err := standard.Sign("55120", now, body)
	if err != nil {
		return nil, err
	}
	standardHeader := http.Header{
		"Content-Type": {"application/json"}, "User-Agent": {"Elido-Webhooks/1.0"},
		"Webhook-Id": {"55120"}, "Webhook-Timestamp": {timestamp}, "Webhook-Signature": {standardSignature},
	}
	return []struct {
		label string
		once  func() error
	}{
		{oursLabel, func() error { return ours.Verify(elido, body) }},
		{oursLabel + ", Standard Webhooks", func() error { return ours.Verify(standardHeader, body) }},
		{"stripe-go, ValidatePayload", func() error { return stripe.ValidatePayload(body, stripeHeader, benchSecret) }},
		{"standard-webhooks, Verify", func() error { return standard.Verify(body, standardHeader) }},
	}, nil
}

func (b *bench) verify(ctx context.Context) error {
	spec := verifySpec{Rounds: 5, Each: 500 * time.Millisecond}
	if b.quick {
		spec = verifySpec{Rounds: 3, Each: 50 * time.Millisecond}
	}
	b.title("Verify", "one request of %d bytes, %d rounds", bodySize, spec.Rounds)
	b.progress("verifying")
	results, err := spawn[[]verifyResult](ctx, b.limit(2*time.Minute), "verify", spec)
	if err != nil {
		return err
	}
	t := b.table("", "µs, median", "allocations", "bytes")
	for _, r := range results {
		t.row(r.Label, fmt.Sprintf("%.3f", median(r.Nanos)/1e3), r.Allocs, r.Bytes)
		if r.Label == oursLabel {
			b.goal("verify-us", median(r.Nanos)/1e3, "<=", 0.7)
			b.goal("verify-allocs", float64(r.Allocs), "<=", 0)
		}
	}
	t.print()
	return nil
}
