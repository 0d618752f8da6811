package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// upstream is the outcome of a round trip.
type upstream struct {
	resp   *http.Response
	served string
	err    error
}

// roundTrip tries the destinations in order; only a failed connection leads to the next.
func (x *exchange) roundTrip(ctx context.Context) upstream {
	var u upstream
	for _, address := range x.dest {
		req, err := x.upstreamRequest(ctx, address)
		if err != nil {
			return upstream{err: err}
		}
		resp, err := x.g.transport.RoundTrip(req)
		u = upstream{resp, address, err}
		var connect *connectError
		if err == nil || !errors.As(err, &connect) || ctx.Err() != nil {
			break
		}
	}
	return u
}

// forward sends the request to the model server and relays the response. nil: the response went through to its end.
func (x *exchange) forward() *answer {
	ctx, stop := context.WithCancel(x.ctx)
	defer stop()
	done := make(chan upstream, 1)
	go func() { done <- x.roundTrip(ctx) }() // awaited below in every case
	var u upstream
	for waiting := true; waiting; {
		select {
		case u = <-done:
			waiting = false
		case m, ok := <-x.picker():
			if a := x.between(m, ok); a != nil {
				stop()
				if u = <-done; u.resp != nil {
					u.resp.Body.Close()
				}
				return a
			}
		}
	}
	if u.err != nil { // 503 for a failed connection and for a reset before the headers alike, as Envoy has it
		if x.ctx.Err() != nil {
			return x.gone()
		}
		return problem(http.StatusServiceUnavailable, fmt.Errorf("model server %s: %w", u.served, u.err))
	}
	x.seen.Served = u.served
	rel := &relay{x: x, resp: u.resp, direct: make(chan []byte), ended: make(chan error, 1), stop: make(chan struct{})}
	a := rel.run()
	stop()
	u.resp.Body.Close()
	rel.wait()
	return a
}

// picker is the picker's messages, nil if it has no more say.
func (x *exchange) picker() <-chan *extprocv3.ProcessingResponse {
	if x.p == nil {
		return nil
	}
	return x.p.in
}

// between handles what the picker says after the request and before the response: a refusal counts, late answers to the request
// do not, and an orderly end means that the response is not to be processed.
func (x *exchange) between(m *extprocv3.ProcessingResponse, ok bool) *answer {
	if !ok {
		return x.silent()
	}
	if im := m.GetImmediateResponse(); im != nil {
		return x.immediate(im)
	}
	return nil
}

// silent is the end of the picker's stream after the request phase.
func (x *exchange) silent() *answer {
	err := x.p.failure()
	if err != nil && x.ctx.Err() != nil {
		return x.gone()
	}
	x.p = nil
	if err == nil {
		return nil
	}
	x.seen.Err = fmt.Errorf("ext_proc stream failed: %w", err)
	if x.g.cfg.FailOpen {
		return nil
	}
	return problem(http.StatusInternalServerError, x.seen.Err)
}

// relay takes one response from the model server through the picker to the client.
type relay struct {
	x      *exchange
	resp   *http.Response
	header http.Header

	mu      sync.Mutex
	pending [][]byte // sent to the picker and not answered; kept until the first streamed answer
	held    int      // bytes in pending
	stream  bool     // the picker answers with streamed chunks
	bypass  bool     // the picker has no more say: chunks go to direct

	direct chan []byte
	ended  chan error    // how the model server's body ended, one value
	stop   chan struct{} // closed when the client's side has ended
	done   sync.WaitGroup
}

func (r *relay) wait() {
	close(r.stop)
	r.done.Wait()
}

// run relays headers and body. After it the caller closes the response's body and calls wait.
func (r *relay) run() *answer {
	x := r.x
	r.header = endToEnd(r.resp.Header)
	bodyless := r.resp.ContentLength == 0 || x.r.Method == http.MethodHead || r.resp.Body == http.NoBody
	if x.p != nil {
		if a := r.processHeaders(bodyless); a != nil {
			return a
		}
	}
	if x.p == nil {
		r.bypass = true
	} else if !bodyless {
		r.header.Del("Content-Length") // the picker may change the body
	}
	out := x.w.Header()
	for name, values := range r.header {
		out[name] = values
	}
	x.started, x.seen.Status = true, r.resp.StatusCode
	x.w.WriteHeader(r.resp.StatusCode)
	if err := http.NewResponseController(x.w).Flush(); err != nil {
		return x.gone()
	}
	if bodyless {
		return nil
	}
	r.done.Go(r.read)
	return r.body()
}

// processHeaders shows the response's headers to the picker and applies its changes.
func (r *relay) processHeaders(eos bool) *answer {
	x := r.x
	select {
	case <-x.upEnded: // one sender at a time
	case <-x.ctx.Done():
		return x.gone()
	}
	m := &extprocv3.ProcessingRequest{
		MetadataContext: servedMetadata(x.seen.Served),
		Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{
			Headers:     headerMap([][2]string{{":status", fmt.Sprint(r.resp.StatusCode)}}, r.header),
			EndOfStream: eos,
		}},
	}
	_ = x.p.send(m) // the receiver learns the reason of a failed send
	timer := x.g.cfg.Clock.Timer(x.g.cfg.MessageTimeout)
	defer timer.Stop()
	for {
		select {
		case m, ok := <-x.p.in:
			if h := m.GetResponseHeaders(); ok && h != nil {
				mutate(r.header, h.GetResponse().GetHeaderMutation())
				return nil
			}
			if a := x.between(m, ok); a != nil || x.p == nil {
				return a
			}
		case <-timer.C:
			return problem(http.StatusGatewayTimeout, fmt.Errorf("no answer of the picker to the response headers within %v", x.g.cfg.MessageTimeout))
		case <-x.ctx.Done():
			return x.gone()
		}
	}
}

// read is the goroutine that reads the model server's body and sends it to the picker, or past it.
func (r *relay) read() {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.resp.Body.Read(buf)
		eos := errors.Is(err, io.EOF)
		if n > 0 || eos {
			if sendErr := r.pass(append([]byte(nil), buf[:n]...), eos); sendErr != nil {
				err, eos = sendErr, false
			}
		}
		if eos {
			err = nil
		}
		if eos || err != nil {
			r.ended <- err
			return
		}
	}
}

// errUnanswered is a picker that takes chunks and answers none.
var errUnanswered = errors.New("the picker leaves more of the response unanswered than the body limit")

// pass sends one chunk to the picker, or directly once the picker has left.
func (r *relay) pass(chunk []byte, eos bool) error {
	r.mu.Lock()
	bypass := r.bypass
	if !bypass && !r.stream {
		r.pending = append(r.pending, chunk)
		r.held += len(chunk)
	}
	over := r.held > r.x.g.cfg.BodyLimit
	r.mu.Unlock()
	if over {
		return errUnanswered
	}
	if bypass {
		select {
		case r.direct <- chunk:
		case <-r.stop:
		}
		return nil
	}
	p := r.x.p
	_ = p.stream.Send(&extprocv3.ProcessingRequest{ // the receiver learns the reason of a failed send
		MetadataContext: servedMetadata(r.x.seen.Served),
		Request:         &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: chunk, EndOfStream: eos}},
	})
	return nil
}

// body relays chunks to the client, each flushed, until the response's end.
func (r *relay) body() *answer {
	x := r.x
	var late <-chan time.Time // armed once the picker owes the last answers
	var upstreamEnd bool
	in := x.picker()
	for {
		select {
		case chunk := <-r.direct:
			if a := r.write(chunk); a != nil {
				return a
			}
		case err := <-r.ended:
			if err != nil {
				return problem(http.StatusBadGateway, fmt.Errorf("response of %s: %w", x.seen.Served, err))
			}
			upstreamEnd = true
			if in == nil || r.drained() {
				return nil
			}
			t := x.g.cfg.Clock.Timer(x.g.cfg.MessageTimeout)
			defer t.Stop()
			late = t.C
		case m, ok := <-in:
			if !ok {
				in = nil
				if a := r.left(); a != nil || upstreamEnd {
					return a
				}
				continue
			}
			end, a := r.answered(m)
			if end || a != nil || (upstreamEnd && r.drained()) {
				return a
			}
		case <-late:
			return problem(http.StatusGatewayTimeout, fmt.Errorf("no answer of the picker to the response body within %v", x.g.cfg.MessageTimeout))
		case <-x.ctx.Done():
			return x.gone()
		}
	}
}

// left handles the end of the picker's stream within the body: what it has not answered goes through as it is, unless it had begun
// to answer in streamed chunks, whose end would then be missing.
func (r *relay) left() *answer {
	x := r.x
	err := x.p.failure()
	r.mu.Lock()
	pending, streaming := r.pending, r.stream
	r.pending, r.bypass = nil, true
	r.mu.Unlock()
	if x.ctx.Err() != nil {
		return x.gone()
	}
	if streaming || (err != nil && !x.g.cfg.FailOpen) {
		return problem(http.StatusInternalServerError, fmt.Errorf("ext_proc stream ended within the response: %w", orEOF(err)))
	}
	for _, chunk := range pending {
		if a := r.write(chunk); a != nil {
			return a
		}
	}
	return nil
}

func orEOF(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

// answered handles one message and tells whether it ended the response.
func (r *relay) answered(m *extprocv3.ProcessingResponse) (bool, *answer) {
	if im := m.GetImmediateResponse(); im != nil {
		return false, r.x.immediate(im)
	}
	b := m.GetResponseBody()
	if b == nil {
		return false, nil
	}
	mutation := b.GetResponse().GetBodyMutation()
	if s := mutation.GetStreamedResponse(); s != nil {
		r.mu.Lock()
		r.stream, r.pending, r.held = true, nil, 0
		r.mu.Unlock()
		return s.GetEndOfStream(), r.write(s.GetBody())
	}
	r.mu.Lock()
	var chunk []byte
	if len(r.pending) > 0 {
		chunk = r.pending[0]
		r.pending = r.pending[1:]
		r.held -= len(chunk)
	}
	r.mu.Unlock()
	if body, ok := mutation.GetMutation().(*extprocv3.BodyMutation_Body); ok {
		chunk = body.Body
	} else if mutation.GetClearBody() {
		chunk = nil
	}
	return false, r.write(chunk)
}

// drained tells whether a picker that leaves chunks as they are has answered all of them.
func (r *relay) drained() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.stream && len(r.pending) == 0
}

func (r *relay) write(chunk []byte) *answer {
	if len(chunk) == 0 {
		return nil
	}
	if _, err := r.x.w.Write(chunk); err != nil {
		return r.x.gone()
	}
	if err := http.NewResponseController(r.x.w).Flush(); err != nil {
		return r.x.gone()
	}
	return nil
}
