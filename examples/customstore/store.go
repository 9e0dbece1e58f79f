// Package customstore is a durable store.Store in less than 300 lines: a journal
// before the memory store. No store reads a clock and each method is one unit, so
// the same calls in the same order lead to the same state. A call is written to a
// file before it is made, and Open makes the calls in it again. It is for one
// process, and its file only grows. docs/stores.md walks through it.
package customstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/elido-app/webhook/store"
	memorystore "github.com/elido-app/webhook/store_memory"
)

// ErrDamaged: the file is not as it was written, or no journal. Open left it alone.
var ErrDamaged = errors.New("the journal is damaged")

// Store is a memory store with a journal: what is read from memory is on disk.
type Store struct {
	*memorystore.Store
	file     *os.File
	writing  sync.Mutex // one call after the other, in the file as in memory
	creating sync.Mutex // one new id after the other
}

// Open opens the store in the file at path, or begins a new one.
func Open(ctx context.Context, path string) (*Store, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600) // it holds secrets
	if err != nil {
		return nil, err
	}
	s := &Store{Store: memorystore.New(memorystore.Options{FirstDeliveryID: 1}), file: file}
	if err := s.replay(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return s, nil
}

func (s *Store) Close() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return cmp.Or(s.Store.Close(), s.file.Close())
}

// header is a journal's first line. The others are each a checksum and a call.
const header = "webhook journal 1\n"

func sum(data []byte) []byte { return fmt.Appendf(nil, "%08x %s", crc32.ChecksumIEEE(data), data) }

func decode(line []byte) (c call, err error) {
	if _, data, _ := bytes.Cut(line, []byte(" ")); bytes.Equal(sum(data), line) {
		return c, json.Unmarshal(data, &c)
	}
	return c, ErrDamaged
}

// replay makes the calls in the file. Those that failed do so again, and no harm.
func (s *Store) replay(ctx context.Context) error {
	data, err := os.ReadFile(s.file.Name())
	rest, ok := bytes.CutPrefix(data, []byte(header))
	switch {
	case err != nil:
		return err
	case bytes.HasPrefix([]byte(header), data): // new, or its creator crashed
		return s.create()
	case !ok:
		return ErrDamaged
	}
	for line := range bytes.Lines(rest) {
		at := len(data) - len(rest)
		rest = rest[len(line):]
		// A last line without an end, or with a hole, is of a call that never returned.
		if len(rest) == 0 && (line[len(line)-1] != '\n' || bytes.IndexByte(line, 0) >= 0) {
			return os.Truncate(s.file.Name(), int64(at))
		}
		c, err := decode(line)
		if err := cmp.Or(err, ctx.Err()); err != nil {
			return fmt.Errorf("at byte %d: %w", at, err)
		}
		_, _ = c.make(context.WithoutCancel(ctx), s.Store)
	}
	return nil
}

// create begins a journal.
func (s *Store) create() error {
	err := cmp.Or(os.WriteFile(s.file.Name(), []byte(header), 0o600), s.file.Sync())
	if err != nil || runtime.GOOS == "windows" { // which cannot sync directories
		return err
	}
	dir, err := os.Open(filepath.Dir(s.file.Name()))
	return cmp.Or(err, dir.Sync(), dir.Close())
}

// do writes a call and then makes it, as read from what was written: so Open
// cannot make another one of it.
func do[R any](ctx context.Context, s *Store, c call) (result R, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	data, err := json.Marshal(c) // without line breaks
	line := sum(append(data, '\n'))
	written, unread := decode(line)
	queue, refused := s.Probe(ctx, store.ProbeParams{}) // closed, or cancelled
	if err := cmp.Or(err, unread, refused); err != nil {
		return result, err
	}
	// Before something is due a claim changes nothing, not even leases that ran out.
	if c.Claim == nil || !queue.NextDue.IsZero() && !queue.NextDue.After(c.Claim.Now) {
		_, err = s.file.Write(line)
		err = cmp.Or(err, s.file.Sync())
	}
	if err != nil {
		// The file may hold all of it, or a part: whoever opens it again will see.
		return result, fmt.Errorf("%w: %w", store.ErrOutcomeUnknown, errors.Join(err, s.Store.Close()))
	}
	made, err := written.make(context.WithoutCancel(ctx), s.Store)
	result, _ = made.(R)
	return result, err
}

// call is one in the journal: a method's parameters, then what JSON leaves out.
type call struct {
	Publish  *store.PublishParams  `json:",omitempty"`
	Create   *store.Endpoint       `json:",omitempty"`
	Update   *store.Endpoint       `json:",omitempty"`
	Rotate   *rotation             `json:",omitempty"`
	Reseal   [][3]int64            `json:",omitempty"` // workspaces, endpoints and revisions
	Delete   *[2]int64             `json:",omitempty"` // workspace and endpoint
	Claim    *store.ClaimParams    `json:",omitempty"`
	Record   *store.RecordParams   `json:",omitempty"`
	Renew    []store.LeaseRef      `json:",omitempty"`
	Release  []store.Release       `json:",omitempty"`
	Retry    *store.RetryParams    `json:",omitempty"`
	Recover  *store.RecoverParams  `json:",omitempty"`
	Maintain *store.MaintainParams `json:",omitempty"`

	Revision    int64       `json:",omitempty"` // of Update
	Credentials *sealed     `json:",omitempty"` // of Update
	Secrets     [][3]sealed `json:",omitempty"` // of Create and Reseal
	Attempts    []attempt   `json:",omitempty"` // of Record's outcomes
	At          time.Time   `json:",omitzero"`
}

type attempt store.Attempt // without its MarshalJSON, which is for people
type rotation struct {
	store.RotateParams
	Secret sealed
}

// sealed is a store.Sealed that does not hide its secret.
type sealed store.Sealed

func (s sealed) MarshalJSON() ([]byte, error) {
	return json.Marshal([][]byte{[]byte(s.KeyID), []byte(s.Data.Reveal())})
}

func (s *sealed) UnmarshalJSON(data []byte) error {
	var parts [2][]byte
	err := json.Unmarshal(data, &parts)
	*s = sealed{string(parts[0]), store.NewSecret(string(parts[1]))}
	return err
}

func (c call) secrets(i int) store.Secrets {
	s := c.Secrets[i]
	return store.Secrets{Current: store.Sealed(s[0]), Previous: store.Sealed(s[1]), PreviousUntil: c.At, Credentials: store.Sealed(s[2])}
}

func (c call) make(ctx context.Context, m *memorystore.Store) (any, error) {
	switch {
	case c.Publish != nil:
		return m.Publish(ctx, *c.Publish)
	case c.Create != nil:
		seal := func(int64) (store.Secrets, error) { return c.secrets(0), nil }
		return m.CreateEndpoint(ctx, store.CreateEndpointParams{Endpoint: *c.Create, Seal: seal})
	case c.Update != nil:
		c.Update.Revision = c.Revision
		return m.UpdateEndpoint(ctx, *c.Update, (*store.Sealed)(c.Credentials))
	case c.Rotate != nil:
		c.Rotate.RotateParams.Secret = store.Sealed(c.Rotate.Secret)
		return m.RotateSecret(ctx, c.Rotate.RotateParams)
	case c.Reseal != nil:
		list := make([]store.EndpointSecrets, len(c.Reseal))
		for i, e := range c.Reseal {
			list[i] = store.EndpointSecrets{WorkspaceID: e[0], EndpointID: e[1], Revision: e[2], Secrets: c.secrets(i)}
		}
		return m.Reseal(ctx, list)
	case c.Delete != nil:
		return nil, m.DeleteEndpoint(ctx, c.Delete[0], c.Delete[1], c.At)
	case c.Claim != nil:
		return m.Claim(ctx, *c.Claim)
	case c.Record != nil:
		for i, a := range c.Attempts {
			c.Record.Outcomes[i].Attempt = store.Attempt(a)
		}
		return m.Record(ctx, *c.Record)
	case c.Renew != nil:
		return m.Renew(ctx, c.Renew, c.At)
	case c.Release != nil:
		return nil, m.Release(ctx, c.Release)
	case c.Retry != nil:
		return m.Retry(ctx, *c.Retry)
	case c.Recover != nil:
		return m.Recover(ctx, *c.Recover)
	case c.Maintain != nil:
		return m.Maintain(ctx, *c.Maintain)
	}
	return nil, nil // Renew or Release of no leases
}

func (s *Store) Publish(ctx context.Context, p store.PublishParams) (store.PublishResult, error) {
	return do[store.PublishResult](ctx, s, call{Publish: &p})
}

func (s *Store) CreateEndpoint(ctx context.Context, p store.CreateEndpointParams) (store.Endpoint, error) {
	s.creating.Lock()
	defer s.creating.Unlock()
	// A rehearsal, which an error from Seal ends, gives the id and the secrets.
	c, seal, known := call{Create: &p.Endpoint, At: p.Endpoint.PreviousUntil}, p.Seal, errors.New("id and secrets are known")
	p.Seal = func(id int64) (store.Secrets, error) {
		made, err := seal(id)
		c.Create.ID = id
		c.Secrets = [][3]sealed{{sealed(made.Current), sealed(made.Previous), sealed(made.Credentials)}}
		return made, cmp.Or(err, known)
	}
	if _, err := s.Store.CreateEndpoint(ctx, p); !errors.Is(err, known) {
		return store.Endpoint{}, err
	}
	return do[store.Endpoint](ctx, s, c)
}

func (s *Store) UpdateEndpoint(ctx context.Context, e store.Endpoint, credentials *store.Sealed) (store.Endpoint, error) {
	return do[store.Endpoint](ctx, s, call{Update: &e, Revision: e.Revision, Credentials: (*sealed)(credentials)})
}

func (s *Store) RotateSecret(ctx context.Context, p store.RotateParams) (store.Endpoint, error) {
	return do[store.Endpoint](ctx, s, call{Rotate: &rotation{p, sealed(p.Secret)}})
}

func (s *Store) Reseal(ctx context.Context, list []store.EndpointSecrets) ([]int64, error) {
	var c call
	for _, e := range list {
		c.Reseal = append(c.Reseal, [3]int64{e.WorkspaceID, e.EndpointID, e.Revision})
		c.Secrets = append(c.Secrets, [3]sealed{sealed(e.Secrets.Current), sealed(e.Secrets.Previous), sealed(e.Secrets.Credentials)})
	}
	return do[[]int64](ctx, s, c)
}

func (s *Store) DeleteEndpoint(ctx context.Context, workspaceID, id int64, at time.Time) error {
	_, err := do[any](ctx, s, call{Delete: &[2]int64{workspaceID, id}, At: at})
	return err
}

func (s *Store) Claim(ctx context.Context, p store.ClaimParams) (store.ClaimResult, error) {
	return do[store.ClaimResult](ctx, s, call{Claim: &p})
}

func (s *Store) Record(ctx context.Context, p store.RecordParams) (store.RecordResult, error) {
	c := call{Record: &p}
	p.Outcomes = slices.Clone(p.Outcomes)
	for i := range p.Outcomes {
		c.Attempts = append(c.Attempts, attempt(p.Outcomes[i].Attempt))
		p.Outcomes[i].Attempt = store.Attempt{}
	}
	return do[store.RecordResult](ctx, s, c)
}

func (s *Store) Renew(ctx context.Context, leases []store.LeaseRef, until time.Time) ([]int64, error) {
	return do[[]int64](ctx, s, call{Renew: leases, At: until})
}

func (s *Store) Release(ctx context.Context, releases []store.Release) error {
	_, err := do[any](ctx, s, call{Release: releases})
	return err
}

func (s *Store) Retry(ctx context.Context, p store.RetryParams) (store.Delivery, error) {
	return do[store.Delivery](ctx, s, call{Retry: &p})
}

func (s *Store) Recover(ctx context.Context, p store.RecoverParams) (int, error) {
	return do[int](ctx, s, call{Recover: &p})
}

func (s *Store) Maintain(ctx context.Context, p store.MaintainParams) (store.MaintainResult, error) {
	return do[store.MaintainResult](ctx, s, call{Maintain: &p})
}
