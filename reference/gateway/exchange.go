package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/llm-weir/weir/harness/wire"
)

// exchange is one request on its way.
type exchange struct {
	g      *Gateway
	w      http.ResponseWriter
	r      *http.Request
	ctx    context.Context
	cancel context.CancelFunc
	p      *processor // nil once the picker has no more say
	up     *upload
	seen   Exchange
	orders directives

	header  http.Header // of the request as it will be forwarded
	body    []byte      // as it will be forwarded
	dest    []string
	upEnded chan struct{} // closed when nothing is sent to the picker for the request any more
	started bool          // response headers went to the client
}

func newExchange(g *Gateway, w http.ResponseWriter, r *http.Request) *exchange {
	x := &exchange{g: g, w: w, r: r, header: endToEnd(r.Header), upEnded: make(chan struct{})}
	if x.header.Get(wire.HeaderRequestID) == "" {
		x.header.Set(wire.HeaderRequestID, newRequestID())
	}
	x.seen = Exchange{ID: x.header.Get(wire.HeaderID), RequestID: x.header.Get(wire.HeaderRequestID), Decision: -1, First: -1}
	return x
}

// answer is what ends an exchange instead of a model server's response.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error // reason, for the observer
}

func problem(status int, err error) *answer {
	return &answer{status: status, body: []byte("weir gateway: " + err.Error()), err: err}
}

// run takes the exchange to its end. It returns when nothing of it needs the ResponseWriter or the body any more.
func (x *exchange) run() {
	x.ctx, x.cancel = context.WithCancel(x.g.base)
	unhook := context.AfterFunc(x.r.Context(), x.cancel)
	defer unhook()
	a := x.process()
	if a == nil {
		a = x.forward()
	}
	x.settleBody()
	if a != nil {
		x.reply(a)
	}
	if x.p != nil && x.ctx.Err() == nil && !x.seen.Broken {
		<-x.upEnded // one sender at a time: CloseSend comes after the body
		x.g.leave(x.p, x.cancel)
		return
	}
	x.cancel()
	<-x.upEnded
}

// settleBody ends the reading of a body that is not needed any more. If the rest is still to come, the connection's read deadline
// wakes the reader, and the connection is not used again.
func (x *exchange) settleBody() {
	if x.up == nil {
		return
	}
	if x.up.complete() {
		// The reader is about to end. A read deadline now would hit net/http's watch for a client that leaves, and look like one.
		<-x.up.read
		return
	}
	x.cancel() // the forwarder may wait for bytes that will not come
	x.w.Header().Set("Connection", "close")
	_ = http.NewResponseController(x.w).SetReadDeadline(time.Unix(1, 0))
	<-x.up.read
}

// reply sends an answer, or breaks off a response that has begun.
func (x *exchange) reply(a *answer) {
	if x.seen.Err == nil {
		x.seen.Err = a.err
	}
	if x.started {
		x.seen.Broken = true
		return
	}
	for name, values := range a.header {
		x.w.Header()[name] = values
	}
	if x.w.Header().Get("Content-Type") == "" {
		x.w.Header().Set("Content-Type", "text/plain")
	}
	x.w.Header().Set("Content-Length", fmt.Sprint(len(a.body)))
	if x.r.Context().Err() == nil {
		x.seen.Status = a.status
	}
	// Written even if the client seems to have left: a handler that writes nothing sends an empty 200.
	x.w.WriteHeader(a.status)
	_, _ = x.w.Write(a.body)
}

// process is the request phase: everything up to the destination. nil: forward.
func (x *exchange) process() *answer {
	meta := subsetMetadata(x.header)
	x.header.Del(wire.HeaderSubset)
	var err error
	if x.orders, err = takeDirectives(x.header); err != nil {
		close(x.upEnded)
		return problem(http.StatusBadRequest, err)
	}
	p, err := x.g.open(x.streamContext(), meta)
	if err != nil {
		close(x.upEnded)
		return x.readBodyThen(x.lost(err))
	}
	x.p = p
	scheme := "http"
	if x.r.TLS != nil {
		scheme = "https"
	}
	eos := bodyless(x.r)
	sendErr := p.send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
		Headers: x.orders.shape(headerMap([][2]string{{":method", x.r.Method}, {":path", x.r.URL.RequestURI()}, {":authority", x.r.Host},
			{":scheme", scheme}}, x.header)),
		EndOfStream: eos,
	}}})
	x.up = &upload{more: make(chan struct{}, 1), read: make(chan struct{})}
	if eos {
		x.up.whole, x.up.at = true, x.g.cfg.Clock.Now()
		close(x.up.read)
	} else {
		_ = http.NewResponseController(x.w).EnableFullDuplex()
		go x.up.receive(x.r.Body, x.g.cfg.BodyLimit, x.g.cfg.Clock) // settleBody waits for it
	}
	go func() { // run waits for it
		defer close(x.upEnded)
		if !eos && sendErr == nil {
			x.up.forward(x.ctx, p, x.g.cfg.ChunkBytes)
		}
		if x.orders.halfClose {
			_ = p.stream.CloseSend()
		}
	}()
	return x.awaitRequest(eos)
}

// streamContext is the context of the picker's stream, with the deadline that the request asks for.
func (x *exchange) streamContext() context.Context {
	if x.orders.deadline <= 0 {
		return x.ctx
	}
	ctx, stop := context.WithTimeout(x.ctx, x.orders.deadline)
	cancel := x.cancel
	x.cancel = func() { stop(); cancel() }
	return ctx
}

// lost is the end of the picker's stream before it had its say: a 500, or nil to fail open after x.body is whole.
func (x *exchange) lost(err error) *answer {
	if err == nil {
		err = errors.New("the picker closed the stream without an answer")
	}
	err = fmt.Errorf("ext_proc stream failed: %w", err)
	x.seen.Err = err
	if status.Code(errors.Unwrap(err)) == codes.DeadlineExceeded && x.orders.deadline > 0 {
		return problem(http.StatusGatewayTimeout, err)
	}
	if !x.g.cfg.FailOpen {
		return problem(http.StatusInternalServerError, err)
	}
	x.dest = []string{x.g.cfg.FailOpenTo}
	x.p = nil
	return nil
}

// readBodyThen completes the body for a request that is forwarded without the picker.
func (x *exchange) readBodyThen(a *answer) *answer {
	if a != nil {
		return a
	}
	if x.up == nil {
		x.up = &upload{more: make(chan struct{}, 1), read: make(chan struct{})}
		if bodyless(x.r) {
			x.up.whole = true
			close(x.up.read)
		} else {
			go x.up.receive(x.r.Body, x.g.cfg.BodyLimit, x.g.cfg.Clock)
		}
	}
	select {
	case <-x.up.read:
	case <-x.ctx.Done():
		return x.gone()
	}
	if x.up.err != nil {
		return bodyProblem(x.up.err)
	}
	x.body = x.up.buf
	return nil
}

func (x *exchange) gone() *answer {
	return problem(http.StatusServiceUnavailable, fmt.Errorf("client gone or gateway closed: %w", context.Cause(x.ctx)))
}

func bodyProblem(err error) *answer {
	if errors.Is(err, errTooLarge) {
		return problem(http.StatusRequestEntityTooLarge, err)
	}
	return problem(http.StatusBadRequest, fmt.Errorf("request body: %w", err))
}

// awaitRequest collects the picker's answers to headers and body. The request may go when the headers are answered and the body has
// either come back to its end or was left as it is.
func (x *exchange) awaitRequest(eos bool) *answer {
	timer := x.g.cfg.Clock.Timer(x.g.cfg.MessageTimeout)
	defer timer.Stop()
	var headers, asIs, streamed, complete bool
	read := x.up.read
	for {
		if headers && (eos || complete || (asIs && read == nil)) {
			break
		}
		select {
		case m, ok := <-x.p.in:
			if !ok {
				return x.readBodyThen(x.lost(x.p.failure()))
			}
			if x.seen.First < 0 {
				x.seen.First = x.g.cfg.Clock.Now()
			}
			switch r := m.GetResponse().(type) {
			case *extprocv3.ProcessingResponse_ImmediateResponse:
				return x.immediate(r.ImmediateResponse)
			case *extprocv3.ProcessingResponse_RequestHeaders:
				headers = true
				x.routed(r.RequestHeaders.GetResponse(), m)
				complete = complete || x.replaced(r.RequestHeaders.GetResponse())
			case *extprocv3.ProcessingResponse_RequestBody:
				common := r.RequestBody.GetResponse()
				s, isStream := common.GetBodyMutation().GetMutation().(*extprocv3.BodyMutation_StreamedResponse)
				switch {
				case isStream:
					streamed = true
					x.body = append(x.body, s.StreamedResponse.GetBody()...)
					complete = complete || s.StreamedResponse.GetEndOfStream()
				case x.replaced(common):
					complete = true
				case !streamed:
					asIs = true
				}
			default:
				return x.readBodyThen(x.lost(fmt.Errorf("unexpected %T in the request phase", r)))
			}
			if len(x.body) > 2*x.g.cfg.BodyLimit {
				return problem(http.StatusInternalServerError, errors.New("ext_proc stream failed: the mutated body is above the limit"))
			}
		case <-read:
			if x.up.err != nil {
				return bodyProblem(x.up.err)
			}
			read = nil
		case <-timer.C:
			err := fmt.Errorf("no answer of the picker within %v", x.g.cfg.MessageTimeout)
			if x.g.cfg.FailOpen {
				return x.readBodyThen(x.lost(err))
			}
			return problem(http.StatusGatewayTimeout, err)
		case <-x.ctx.Done():
			return x.gone()
		}
	}
	x.seen.Decision = x.up.since(x.g.cfg.Clock.Now())
	if !complete {
		x.body = x.up.buf
	}
	if x.orders.halfClose { // the picker is told nothing of the response
		<-x.upEnded
		x.g.leave(x.p, func() {}) // the exchange goes on, and ends the stream with itself if the picker has not
		x.p = nil
	}
	return x.destination()
}

// routed takes the destination and the header changes from the answer to the request's headers.
func (x *exchange) routed(c *extprocv3.CommonResponse, m *extprocv3.ProcessingResponse) {
	mutate(x.header, c.GetHeaderMutation())
	x.seen.HeaderDestination = mutated(c.GetHeaderMutation(), wire.HeaderDestination)
	x.seen.MetadataDestination = metadataDestination(m.GetDynamicMetadata())
}

// replaced takes a whole-body mutation, which pickers of the buffered modes use.
func (x *exchange) replaced(c *extprocv3.CommonResponse) bool {
	switch b := c.GetBodyMutation().GetMutation().(type) {
	case *extprocv3.BodyMutation_Body:
		x.body = b.Body
		return true
	case *extprocv3.BodyMutation_ClearBody:
		x.body = nil
		return b.ClearBody
	}
	return false
}

func (x *exchange) destination() *answer {
	d := x.seen.HeaderDestination
	if d == "" {
		d = x.seen.MetadataDestination
	}
	if x.dest = destinations(d); len(x.dest) == 0 {
		return problem(http.StatusServiceUnavailable, errors.New("the picker named no destination"))
	}
	return nil
}

// immediate is the picker's own response.
func (x *exchange) immediate(im *extprocv3.ImmediateResponse) *answer {
	x.seen.Immediate = true
	a := &answer{status: int(im.GetStatus().GetCode()), header: http.Header{}, body: im.GetBody()}
	if a.status < 200 || a.status > 599 {
		a.status = http.StatusOK // Envoy's reading of an absent status
	}
	mutate(a.header, im.GetHeaders())
	x.seen.Reason = a.header.Get(wire.HeaderDroppedReason)
	return a
}

// upstreamRequest is the request for one destination.
func (x *exchange) upstreamRequest(ctx context.Context, address string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, x.r.Method, "http://"+address, bytes.NewReader(x.body))
	if err != nil {
		return nil, err
	}
	req.URL.Opaque = "" // the path is taken over as it came, not as it would be cleaned
	req.URL.Path, req.URL.RawPath, req.URL.RawQuery, req.URL.ForceQuery = x.r.URL.Path, x.r.URL.RawPath, x.r.URL.RawQuery, x.r.URL.ForceQuery
	req.Host = x.r.Host
	req.Header = x.header.Clone()
	req.Header.Del("Content-Length")
	if _, named := req.Header["User-Agent"]; !named {
		req.Header["User-Agent"] = nil // otherwise net/http signs for the client
	}
	if len(x.body) == 0 && bodyless(x.r) {
		req.Body, req.GetBody = http.NoBody, nil
	}
	return req, nil
}
