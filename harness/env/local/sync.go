package local

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/llm-weir/weir/harness/env/embedded"
)

// exchange is where the pickers of a stage tell each other what they have in flight: a Redis in this process, and for each picker a way
// to it of its own that can be cut.
type exchange struct {
	redis *embedded.Broker
	ways  []*way
}

// openExchange makes one with n ways.
func openExchange(n int) (*exchange, error) {
	redis, err := embedded.Start(loopback)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	x := &exchange{redis: redis}
	for range n {
		ln, err := net.Listen("tcp", loopback)
		if err != nil {
			x.close()
			return nil, fmt.Errorf("way to the redis: %w", err)
		}
		w := &way{listener: ln, to: x.redis.Addr(), open: map[net.Conn]bool{}}
		w.tasks.Go(w.serve)
		x.ways = append(x.ways, w)
	}
	return x, nil
}

func (x *exchange) close() {
	for _, w := range x.ways {
		w.cut()
	}
	x.redis.Close()
}

// way passes connections on, until it is cut.
type way struct {
	listener net.Listener
	to       string
	tasks    sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]bool
}

func (w *way) url() string { return "redis://" + w.listener.Addr().String() }

func (w *way) serve() {
	for {
		in, err := w.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", w.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		if !w.keep(in, out) {
			return
		}
		w.tasks.Go(func() { w.pass(in, out) })
		w.tasks.Go(func() { w.pass(out, in) })
	}
}

// keep notes connections so that they can be cut; false if they already are.
func (w *way) keep(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		if w.closed {
			_ = c.Close()
		} else {
			w.open[c] = true
		}
	}
	return !w.closed
}

// pass copies one direction and ends both.
func (w *way) pass(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range []net.Conn{from, to} {
		delete(w.open, c)
		_ = c.Close()
	}
}

// cut breaks the way for good.
func (w *way) cut() {
	w.mu.Lock()
	w.closed = true
	w.listener.Close()
	for c := range w.open {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.tasks.Wait()
}

// CutOff implements sut.Stage.
func (st *stage) CutOff(picker int) error {
	if st.exchange == nil || picker < 0 || picker >= len(st.exchange.ways) {
		return errors.New("the pickers do not tell each other anything")
	}
	st.exchange.ways[picker].cut()
	return nil
}

// syncURL is where the n-th picker tells the others; "" where it does not.
func (st *stage) syncURL(n int) string {
	if st.exchange == nil {
		return ""
	}
	return st.exchange.ways[n].url()
}
