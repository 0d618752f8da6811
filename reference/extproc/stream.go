package extproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/picker"
)

// exchange is one HTTP request and its response.
type exchange struct {
	s       *Server
	stream  extprocv3.ExternalProcessor_ProcessServer
	headers *corev3.HeaderMap
	request picker.Request
	id      Identity
	path    string
	body    []byte

	placed    bool // Finish is owed
	placement Placement
	streaming bool
	started   bool // the first chunk of a streaming response has passed
}

func newExchange(s *Server, stream extprocv3.ExternalProcessor_ProcessServer) *exchange {
	return &exchange{s: s, stream: stream}
}

// errStop ends the handler without an error: the exchange is answered and the peer has left.
var errStop = errors.New("stop")

// run reads the request phase, then the response phase. Whatever ends it, a placed request is finished once.
func (x *exchange) run() error {
	defer x.finish()
	for {
		m, err := x.stream.Recv()
		if err != nil {
			return ended(err)
		}
		done, err := x.requestPhase(m)
		if errors.Is(err, errStop) {
			return nil
		}
		if err != nil {
			return err
		}
		if done {
			return x.responsePhase()
		}
	}
}

// ended maps the end of the stream: a peer that leaves is no error (spec/endpoint-picker.md §1.1).
func ended(err error) error {
	if errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled || errors.Is(err, context.Canceled) {
		return nil
	}
	return status.Errorf(codes.Unknown, "cannot receive stream request: %v", err)
}

func unexpected(what string) error {
	return status.Errorf(codes.InvalidArgument, "unexpected message: %s", what)
}

func (x *exchange) finish() {
	if x.placed {
		x.placed = false
		x.s.admission.Finish(x.placement.ID)
	}
}

func (x *exchange) send(ms ...*extprocv3.ProcessingResponse) error {
	for _, m := range ms {
		if err := x.stream.Send(m); err != nil {
			return ended(err)
		}
	}
	return nil
}

// requestPhase handles one message and tells whether the request is answered.
func (x *exchange) requestPhase(m *extprocv3.ProcessingRequest) (bool, error) {
	if subset, ok := Subset(m.GetMetadataContext()); ok {
		x.request.Subset, x.request.HasSubset = subset, true
	}
	switch r := m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_RequestHeaders:
		if x.headers != nil {
			return false, unexpected("request headers twice")
		}
		return x.requestHeaders(r.RequestHeaders)
	case *extprocv3.ProcessingRequest_RequestBody:
		if x.headers == nil {
			return false, unexpected("request body before request headers")
		}
		if len(x.body)+len(r.RequestBody.GetBody()) > x.s.cfg.BodyLimit {
			return false, x.refuse("", wire.Refusal{Status: http.StatusRequestEntityTooLarge,
				Body: fmt.Sprintf("inference error: PayloadTooLarge - the request body exceeds %d bytes", x.s.cfg.BodyLimit)})
		}
		x.body = append(x.body, r.RequestBody.GetBody()...)
		if !r.RequestBody.GetEndOfStream() {
			return false, nil
		}
		return x.decide()
	case *extprocv3.ProcessingRequest_RequestTrailers:
		return false, nil // never answered; the body has to end with its own last message
	default:
		return false, unexpected(fmt.Sprintf("%T in the request phase", r))
	}
}

func (x *exchange) requestHeaders(h *extprocv3.HttpHeaders) (bool, error) {
	x.headers = h.GetHeaders()
	if x.headers == nil {
		x.headers = &corev3.HeaderMap{}
	}
	read := ReadHeaders(x.headers)
	x.path = read.Path()
	x.id = x.s.cfg.Classify(read)
	x.request.Received = x.s.cfg.Clock.Now()
	if !h.GetEndOfStream() {
		return false, nil
	}
	// Without a body there is nothing to parse or queue: any endpoint will do, and it is not accounted.
	ep, ok := x.s.admission.Any()
	if !ok {
		return false, x.refuse("", x.s.cfg.Refuse(wire.RejectedNoEndpoints))
	}
	return true, x.send(RequestHeadersResponse(ep.Address, 0, nil))
}

// refuse answers with an immediate response and waits for the peer to close the stream.
func (x *exchange) refuse(model string, r wire.Refusal) error {
	x.s.cfg.OnRefusal(x.id, model, r)
	return x.dismiss(r)
}

func (x *exchange) dismiss(r wire.Refusal) error {
	x.body = nil
	if err := x.send(Immediate(r)); err != nil {
		return err
	}
	for {
		if _, err := x.stream.Recv(); err != nil {
			return errStop
		}
	}
}

// decide parses the whole body, waits for the picker's decision and answers.
func (x *exchange) decide() (bool, error) {
	b, refusal := ParseBody(x.path, x.body)
	if refusal == nil && !b.Known && x.s.cfg.RejectUnknownPaths {
		refusal = UnknownPath(x.path)
	}
	if refusal != nil {
		return false, x.refuse(b.Model, *refusal)
	}
	x.streaming = b.Stream
	x.request.FairnessID, x.request.Model = x.id.FairnessID, b.Model
	x.request.Priority = x.s.admission.Priority(x.id.Objective)
	x.request.TTFT, x.request.HasTTFT = x.id.TTFT, x.id.HasTTFT
	x.request.Bytes, x.request.Tokens = int64(len(x.body)), b.PromptTokens
	p, outcome := x.s.admission.Submit(x.stream.Context(), x.id.Label, x.request)
	if outcome != wire.Dispatched {
		return false, x.dismiss(x.s.cfg.Refuse(outcome))
	}
	x.placed, x.placement = true, p
	addresses := []string{p.Endpoint.Address}
	for _, f := range p.Fallbacks {
		addresses = append(addresses, f.Address)
	}
	if err := x.send(RequestHeadersResponse(Destination(addresses), len(x.body), x.headers)); err != nil {
		return false, err
	}
	err := x.send(RequestBodyResponses(x.body)...)
	x.body, x.headers = nil, nil
	return true, err
}

// received is one message of the response phase, or the end of the stream.
type received struct {
	m   *extprocv3.ProcessingRequest
	err error
}

// responsePhase answers the response's messages until the stream ends or the request is evicted. A reader of its own is needed only
// here, because only here two things are awaited at once; it ends with the stream's context and Server.Wait waits for it.
func (x *exchange) responsePhase() error {
	in := make(chan received)
	ctx := x.stream.Context()
	x.s.readers.Add(1)
	go func() {
		defer x.s.readers.Done()
		for {
			m, err := x.stream.Recv()
			select {
			case in <- received{m, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	evicted := x.placement.Evicted
	for {
		select {
		case <-evicted:
			if x.placed { // a response that is already over is left alone
				return x.send(Immediate(wire.Evicted()))
			}
			evicted = nil
		case r := <-in:
			if r.err != nil {
				return ended(r.err)
			}
			if err := x.response(r.m); err != nil {
				return err
			}
		case <-ctx.Done():
			return ended(ctx.Err())
		}
	}
}

func (x *exchange) response(m *extprocv3.ProcessingRequest) error {
	switch r := m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		h := ReadHeaders(r.ResponseHeaders.GetHeaders())
		x.streaming = x.streaming || strings.Contains(h["content-type"], "text/event-stream")
		if r.ResponseHeaders.GetEndOfStream() {
			x.finish()
		}
		return x.send(ResponseHeadersResponse(r.ResponseHeaders.GetHeaders()))
	case *extprocv3.ProcessingRequest_ResponseBody:
		b := r.ResponseBody
		if x.placed && x.streaming && !x.started && len(b.GetBody()) > 0 {
			x.started = true
			x.s.admission.FirstChunk(x.placement.ID)
		}
		// The resources are free before the last bytes leave: whoever sees the end of the response and sends the next request finds
		// them free.
		if b.GetEndOfStream() {
			x.finish()
		}
		return x.send(ResponseBodyResponses(b.GetBody(), b.GetEndOfStream())...)
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		x.finish()
		return x.send(ResponseTrailersResponse())
	case *extprocv3.ProcessingRequest_RequestTrailers:
		return nil
	default:
		return unexpected(fmt.Sprintf("%T in the response phase", r))
	}
}
