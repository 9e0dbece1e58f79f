package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// A poster signs and POSTs with net/http. It is the bare loop's, and what the
// peers' workers do: the same request as this library makes, header by header.
//
// It is as fast as net/http's client gets by ordinary means: as many idle
// connections as there are requests at once (the default of 2 would halve it), a
// *bytes.Reader as the body (headers and body in one write), the answer read to
// its end (else the connection is lost), HMAC state reused, no timer and no
// cancellation.
type poster struct {
	client *http.Client
	urls   []string
	macs   sync.Pool
}

const benchSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" //nolint:gosec // signs nothing but these

func newPoster(urls []string, atOnce int) *poster {
	p := &poster{
		urls: urls,
		client: &http.Client{Transport: &http.Transport{
			MaxIdleConns: atOnce, MaxIdleConnsPerHost: atOnce, DisableCompression: true,
		}},
	}
	p.macs.New = func() any { return hmac.New(sha256.New, []byte(benchSecret)) }
	return p
}

func (p *poster) close() { p.client.CloseIdleConnections() }

func (p *poster) post(endpoint int, body []byte, id string) error {
	mac := p.macs.Get().(hash.Hash)
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	mac.Reset()
	_, _ = io.WriteString(mac, timestamp)
	_, _ = io.WriteString(mac, ".")
	_, _ = mac.Write(body)
	var sum [sha256.Size]byte
	signature := "v1=" + hex.EncodeToString(mac.Sum(sum[:0]))
	p.macs.Put(mac)

	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, p.urls[endpoint], bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = http.Header{
		"Content-Type":        {"application/json"},
		"User-Agent":          {"Elido-Webhooks/1.0"},
		"X-Elido-Signature":   {signature},
		"X-Webhook-Delivery":  {id},
		"X-Webhook-Event":     {eventType},
		"X-Webhook-Signature": {signature},
		"X-Webhook-Timestamp": {timestamp},
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("answered %s", resp.Status)
	}
	return err
}

// bareWorkers is how many goroutines the bare loop has: as many as this library
// has workers.
const bareWorkers = 64

// bare is the bare loop: it signs and POSTs n times and keeps nothing.
func bare(p *poster, n int) error {
	body, err := envelope(newData())
	if err != nil {
		return err
	}
	var (
		next   atomic.Int64
		wg     sync.WaitGroup
		failed atomic.Pointer[error]
	)
	for range bareWorkers {
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(n) || failed.Load() != nil {
					return
				}
				if err := p.post(int(i)%len(p.urls), body, strconv.FormatInt(i, 10)); err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}
