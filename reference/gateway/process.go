package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/llm-weir/weir/harness/clock"
)

// processor is the picker's stream of one exchange: one goroutine receives, at most one other sends at a time.
type processor struct {
	stream extprocv3.ExternalProcessor_ProcessClient
	meta   *corev3.Metadata // sent with every message
	in     chan *extprocv3.ProcessingResponse
	err    error         // how the stream ended; valid once in is closed
	quiet  chan struct{} // closed when nobody listens to in any more
	ended  chan struct{} // closed when the receiver has ended
	once   sync.Once
}

// open starts the stream. Its receiver belongs to the gateway and ends with ctx.
func (g *Gateway) open(ctx context.Context, meta *corev3.Metadata) (*processor, error) {
	stream, err := g.client().Process(ctx)
	if err != nil {
		return nil, err
	}
	p := &processor{stream: stream, meta: meta, in: make(chan *extprocv3.ProcessingResponse), quiet: make(chan struct{}), ended: make(chan struct{})}
	g.tasks.Go(func() {
		defer close(p.ended)
		defer close(p.in)
		for {
			m, err := stream.Recv()
			if err != nil {
				p.err = err
				return
			}
			select {
			case p.in <- m:
			case <-p.quiet: // what still comes is of no interest; the stream's end is
			case <-ctx.Done():
			}
		}
	})
	return p, nil
}

// Idle opens n streams to the picker and says nothing on them; they last until ctx ends or the gateway is closed.
func (g *Gateway) Idle(ctx context.Context, n int) error {
	for range n {
		ctx, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(g.base, cancel)
		stream, err := g.client().Process(ctx)
		if err == nil {
			// Without a message a stream may not leave this side; the empty one is none that a picker would answer.
			err = stream.Send(&extprocv3.ProcessingRequest{})
		}
		if err != nil {
			cancel()
			return fmt.Errorf("idle stream: %w", err)
		}
		g.tasks.Go(func() {
			defer cancel()
			defer stop()
			for {
				if _, err := stream.Recv(); err != nil {
					return
				}
			}
		})
	}
	return nil
}

// failure is how the stream ended; nil for an orderly end.
func (p *processor) failure() error {
	if errors.Is(p.err, io.EOF) {
		return nil
	}
	return p.err
}

func (p *processor) send(m *extprocv3.ProcessingRequest) error {
	if m.MetadataContext == nil {
		m.MetadataContext = p.meta
	}
	return p.stream.Send(m)
}

// lingerTime is how long a picker may take to end a stream on which everything is said before it is cancelled.
const lingerTime = time.Second

// leave closes the sending side and lets the picker end the stream in its own time; cancel is called when it has, or is late. An
// abrupt cancel after each exchange would be counted by pickers as a client that gave up.
func (g *Gateway) leave(p *processor, cancel context.CancelFunc) {
	p.once.Do(func() { close(p.quiet) })
	_ = p.stream.CloseSend()
	g.tasks.Go(func() {
		defer cancel()
		t := g.cfg.Clock.Timer(lingerTime)
		defer t.Stop()
		select {
		case <-p.ended:
		case <-t.C:
		case <-g.base.Done():
		}
	})
}

// upload reads the client's body while its beginning is already on the way to the picker. Reading never waits for the picker: only
// when the whole body is read does net/http notice that a client has left.
type upload struct {
	mu    sync.Mutex
	buf   []byte
	whole bool
	err   error
	more  chan struct{} // one token: there is something new
	read  chan struct{} // closed when whole or err is set
	at    time.Duration // when whole was set
}

// errTooLarge is a body above the limit.
var errTooLarge = errors.New("request body above the limit")

// receive reads body to its end.
func (u *upload) receive(body io.Reader, limit int, c clock.Clock) {
	defer close(u.read)
	chunk := make([]byte, 32<<10)
	for {
		n, err := body.Read(chunk)
		u.mu.Lock()
		u.buf = append(u.buf, chunk[:n]...)
		switch {
		case len(u.buf) > limit:
			u.err = errTooLarge
		case errors.Is(err, io.EOF):
			u.whole, u.at = true, c.Now()
		case err != nil:
			u.err = err
		}
		stop := u.whole || u.err != nil
		u.mu.Unlock()
		select {
		case u.more <- struct{}{}:
		default:
		}
		if stop {
			return
		}
	}
}

// complete tells whether the last byte has been read.
func (u *upload) complete() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.whole
}

// since is the time from the last byte to now; 0 if the body is not whole yet.
func (u *upload) since(now time.Duration) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.whole {
		return 0
	}
	return now - u.at
}

// forward sends the body in chunks until the last one, or until ctx ends or the stream fails.
func (u *upload) forward(ctx context.Context, p *processor, chunkBytes int) {
	for sent := 0; ; {
		u.mu.Lock()
		piece := u.buf[sent:min(len(u.buf), sent+chunkBytes)]
		last := u.whole && sent+len(piece) == len(u.buf)
		failed := u.err != nil
		u.mu.Unlock()
		if failed {
			return
		}
		if len(piece) == 0 && !last {
			select {
			case <-u.more:
				continue
			case <-ctx.Done():
				return
			}
		}
		m := &extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{
			RequestBody: &extprocv3.HttpBody{Body: piece, EndOfStream: last},
		}}
		if p.send(m) != nil || last {
			return // the receiver learns the reason of a failed send
		}
		sent += len(piece)
	}
}

// bodyless tells whether the request's headers end it. An empty POST still gets its own last body message, as in HTTP/2 with an
// empty DATA frame: a picker can then judge the empty body.
func bodyless(r *http.Request) bool {
	if r.ContentLength != 0 {
		return false
	}
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		return false
	}
	return true
}
