package egress

import (
	"sync"
	"time"
)

// A pool keeps connections that nobody uses, for a moment.
type pool struct {
	perHost int

	mu    sync.Mutex
	conns map[host][]*conn // by how long they have been idle, the longest first
	timer *time.Timer      // set while there are any
}

// take returns the connection that was used last, or nil.
func (p *pool) take(h host) *conn {
	for {
		c := p.pop(h)
		if c == nil {
			return nil
		}
		if time.Since(c.since) < idleLimit && c.quiet() {
			return c
		}
		c.drop()
	}
}

func (p *pool) pop(h host) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.conns[h]
	if len(list) == 0 {
		return nil
	}
	last := len(list) - 1
	c := list[last]
	list[last] = nil
	p.conns[h] = list[:last]
	return c
}

// put takes a connection in, or closes it where there are enough.
func (p *pool) put(c *conn) {
	c.since = time.Now()
	if !p.push(c) {
		_ = c.Close()
	}
}

func (p *pool) push(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.conns[c.host]) >= p.perHost {
		return false
	}
	if p.conns == nil {
		p.conns = map[host][]*conn{}
	}
	p.conns[c.host] = append(p.conns[c.host], c)
	if p.timer == nil {
		p.timer = time.AfterFunc(idleLimit, p.sweep)
	}
	return true
}

// sweep closes what has been idle for too long.
func (p *pool) sweep() {
	now := time.Now()
	var old []*conn
	p.mu.Lock()
	next := time.Duration(0)
	for h, list := range p.conns {
		n := 0
		for n < len(list) && now.Sub(list[n].since) >= idleLimit {
			n++
		}
		old = append(old, list[:n]...)
		if n == len(list) {
			delete(p.conns, h)
			continue
		}
		p.conns[h] = append(list[:0:0], list[n:]...)
		if left := idleLimit - now.Sub(list[n].since); next == 0 || left < next {
			next = left
		}
	}
	p.timer = nil
	if next > 0 {
		p.timer = time.AfterFunc(max(next, idleLimit/30), p.sweep)
	}
	p.mu.Unlock()
	for _, c := range old {
		_ = c.Close()
	}
}

// close closes all of them.
func (p *pool) close() {
	p.mu.Lock()
	conns := p.conns
	p.conns = nil
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.mu.Unlock()
	for _, list := range conns {
		for _, c := range list {
			_ = c.Close()
		}
	}
}
