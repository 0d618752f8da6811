package extproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

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

	placed    bool // FinishWith is owed
	placement Placement
	answer    *answer // of a placed request
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

// ended maps the end of the stream: a peer that leaves is no error (spec/endpoint-picker.md §1.1), and one whose deadline passes is
// told so.
func ended(err error) error {
	switch {
	case errors.Is(err, io.EOF) || status.Code(err) == codes.Canceled || errors.Is(err, context.Canceled):
		return nil
	case status.Code(err) == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(context.DeadlineExceeded).Err()
	}
	return status.Errorf(codes.Unknown, "cannot receive stream request: %v", err)
}

func unexpected(what string) error {
	return status.Errorf(codes.InvalidArgument, "unexpected message: %s", what)
}

// finish frees the resources of a placed request and reports it.
func (x *exchange) finish() {
	if !x.placed {
		return
	}
	x.placed = false
	r := x.answer.report()
	x.s.admission.FinishWith(x.placement.ID, r.Usage.Picker())
	r.Ended = x.s.cfg.Clock.Now()
	x.s.cfg.OnReport(r)
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
		return x.decide(true)
	case *extprocv3.ProcessingRequest_RequestTrailers:
		if x.headers == nil {
			return false, unexpected("request trailers before request headers")
		}
		// The known router waits for a last body message that a request with trailers never has, and its client for ever.
		return x.decide(false)
	default:
		return false, unexpected(fmt.Sprintf("%T in the request phase", r))
	}
}

func (x *exchange) requestHeaders(h *extprocv3.HttpHeaders) (bool, error) {
	x.headers = h.GetHeaders()
	if x.headers == nil {
		x.headers = &corev3.HeaderMap{}
	}
	x.request.Received = x.s.cfg.Clock.Now()
	if n := size(x.headers); n > x.s.cfg.HeaderLimit {
		x.id = x.s.cfg.Classify(Headers{})
		return false, x.refuse("", wire.Refusal{Status: http.StatusRequestHeaderFieldsTooLarge,
			Body: fmt.Sprintf("inference error: BadRequest - the request headers exceed %d bytes", x.s.cfg.HeaderLimit)})
	}
	read := ReadHeaders(x.headers)
	x.path = read.Path()
	x.id = x.s.cfg.Classify(read)
	if !h.GetEndOfStream() {
		return false, nil
	}
	// Without a body there is nothing to parse or queue: any endpoint will do, and it is not accounted.
	ep, ok := x.s.admission.Any()
	if !ok {
		return false, x.refuse("", x.s.cfg.Refuse(wire.RejectedNoEndpoints))
	}
	return true, x.send(RequestHeadersResponse(ep.Address, 0, nil, x.hidden(false)))
}

// hidden lists the headers that the model server is not to see. An answer whose names are mapped back must not come compressed.
func (x *exchange) hidden(mapped bool) []string {
	var out []string
	if !x.s.cfg.KeepControlHeaders {
		out = controlHeaders(x.headers)
	}
	if mapped {
		out = append(out, "accept-encoding")
	}
	return out
}

// refuse answers with an immediate response and waits for the peer to close the stream.
func (x *exchange) refuse(model string, r wire.Refusal) error {
	x.s.cfg.OnRefusal(x.id, model, r)
	return x.dismiss(r)
}

func (x *exchange) dismiss(r wire.Refusal) error {
	x.body, x.headers = nil, nil
	if err := x.send(Immediate(r)); err != nil {
		return err
	}
	for {
		if _, err := x.stream.Recv(); err != nil {
			if status.Code(ended(err)) == codes.DeadlineExceeded {
				return ended(err)
			}
			return errStop
		}
	}
}

// decide parses the whole body, waits for the picker's decision and answers. eos is false if trailers ended the body.
func (x *exchange) decide(eos bool) (bool, error) {
	cfg := &x.s.cfg
	began := cfg.Clock.Now()
	b, refusal := parse(x.path, x.body)
	cfg.OnParse(b.Parser, cfg.Clock.Now()-began)
	if refusal == nil && !b.Known && cfg.RejectUnknownPaths {
		refusal = UnknownPath(x.path)
	}
	target, rule := b.Model, ""
	if refusal == nil && b.Known {
		if target, rule = cfg.Rewriter.Target(b.Model, x.id.Rewrite); target == "" {
			refusal = noModel()
		}
	}
	if refusal != nil {
		return false, x.refuse(b.Model, *refusal)
	}
	received := int64(len(x.body))
	if target != b.Model {
		x.body = withModel(x.body, b.models, target)
		cfg.OnRewrite(rule, b.Model, target)
	}
	x.request.FairnessID, x.request.Priority = x.id.FairnessID, x.s.admission.Priority(x.id.Objective)
	x.request.TTFT, x.request.HasTTFT, x.request.Bytes = x.id.TTFT, x.id.HasTTFT, received
	b.Into(&x.request, target, cfg.Prefix)
	p, outcome := x.s.admission.Submit(x.stream.Context(), Submission{Label: x.id.Label, Incoming: b.Model, Request: x.request})
	if outcome != wire.Dispatched {
		return false, x.dismiss(cfg.Refuse(outcome))
	}
	x.placed, x.placement = true, p
	x.answer = newAnswer(x, b, target, received)
	return true, x.answerRequest(eos, target != b.Model)
}

// answerRequest sends the destination and the body back, each in its turn.
func (x *exchange) answerRequest(eos, rewritten bool) error {
	addresses := []string{x.placement.Endpoint.Address}
	for _, f := range x.placement.Fallbacks {
		addresses = append(addresses, f.Address)
	}
	headers := RequestHeadersResponse(Destination(addresses), len(x.body), x.headers, x.hidden(rewritten))
	if x.id.RequestID == "" {
		mutation := headers.GetRequestHeaders().GetResponse().GetHeaderMutation()
		mutation.SetHeaders = append(mutation.SetHeaders, option(wire.HeaderRequestID, x.s.cfg.NewRequestID()))
	}
	if err := x.send(headers); err != nil {
		return err
	}
	err := x.send(RequestBodyResponses(x.body, eos)...)
	if err == nil && !eos {
		err = x.send(RequestTrailersResponse())
	}
	x.body, x.headers = nil, nil
	x.answer.r.Answered = x.s.cfg.Clock.Now()
	return err
}

// received is one message of the response phase, or the end of the stream.
type received struct {
	m   *extprocv3.ProcessingRequest
	err error
}

// responsePhase answers the response's messages until the stream ends or the request is evicted.
func (x *exchange) responsePhase() error {
	if x.placement.Evicted != nil {
		return x.evictableResponse()
	}
	for {
		m, err := x.stream.Recv()
		if err != nil {
			return ended(err)
		}
		if err := x.response(m); err != nil {
			return err
		}
	}
}

// evictableResponse is responsePhase for a request that may be evicted. A reader of its own is needed only here, because only here two
// things are awaited at once; it ends with the stream's context and Server.Wait waits for it.
func (x *exchange) evictableResponse() error {
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
