package processor

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"

	"github.com/llm-weir/weir/harness/env/binary"
)

// proxy stands between a processor and its broker: what it carries can be stopped, cut, and refused, while the broker keeps what it has.
type proxy struct {
	target string
	addr   string
	tls    *tls.Config // nil: none towards the processor

	mu       sync.Mutex
	ln       net.Listener // nil: nobody listens
	broken   bool         // what connects is closed at once
	conns    map[net.Conn]bool
	accepted int
	gate     chan struct{} // closed: bytes may pass
	tasks    sync.WaitGroup
}

func newProxy(target string, t *tls.Config) (*proxy, error) {
	p := &proxy{target: target, tls: t, conns: map[net.Conn]bool{}, gate: make(chan struct{})}
	close(p.gate)
	// It returns to its port after an outage: no port that the system gives to whoever connects meanwhile.
	return p, settle(binary.FreePort, func(addr string) error { p.addr = addr; return p.up() })
}

// up listens, at the same address as before.
func (p *proxy) up() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.broken = false
	if p.ln != nil {
		return nil
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", p.addr)
	if err != nil {
		return fmt.Errorf("broker proxy: %w", err)
	}
	p.addr = ln.Addr().String()
	if p.tls != nil {
		ln = tls.NewListener(ln, p.tls)
	}
	p.ln = ln
	p.tasks.Go(func() { p.accept(ln) })
	return nil
}

// down refuses connections and closes those that are open.
func (p *proxy) down() {
	p.mu.Lock()
	if p.ln != nil {
		p.ln.Close()
		p.ln = nil
	}
	p.mu.Unlock()
	p.cut()
}

// breakUp goes on listening, but closes whatever connects: a broker that is broken and can be counted against, until up.
func (p *proxy) breakUp() {
	p.mu.Lock()
	p.broken = true
	p.mu.Unlock()
	p.cut()
}

// cut closes what is open.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// pause holds every byte back; connections stay open, and new ones are accepted.
func (p *proxy) pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
		p.gate = make(chan struct{})
	default:
	}
}

func (p *proxy) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
}

func (p *proxy) counts() (open, accepted int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) / 2, p.accepted
}

func (p *proxy) close() {
	p.resume()
	p.down()
	p.tasks.Wait()
}

func (p *proxy) accept(ln net.Listener) {
	for {
		in, err := ln.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.accepted++
		broken := p.broken
		p.mu.Unlock()
		if broken {
			_ = in.Close()
			continue
		}
		var d net.Dialer
		out, err := d.DialContext(context.Background(), "tcp", p.target)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in], p.conns[out] = true, true
		listening := p.ln == ln
		p.mu.Unlock()
		if !listening { // it was taken down meanwhile
			p.end(in, out)
			continue
		}
		for _, d := range [][2]net.Conn{{in, out}, {out, in}} {
			p.tasks.Go(func() {
				p.carry(d[1], d[0])
				p.end(in, out)
			})
		}
	}
}

func (p *proxy) end(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}

func (p *proxy) carry(to, from net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.mu.Lock()
			gate := p.gate
			p.mu.Unlock()
			<-gate
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
