package extproc

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
)

// answer is the response to a placed request as it passes.
type answer struct {
	x   *exchange
	tap *tap
	r   Report
	gap func(time.Duration) // nil: nobody asks

	headers  bool // response headers have passed
	over     bool // the response's end has passed
	lastStep time.Duration
}

func newAnswer(x *exchange, b Body, target string, received int64) *answer {
	return &answer{x: x, tap: newTap(b.kind, b.Model, target), r: Report{
		Identity: x.id, Model: b.Model, Target: target, Priority: x.request.Priority, Streaming: b.Stream,
		RequestBytes: received, Received: x.request.Received,
	}}
}

func (a *answer) report() Report {
	a.r.Usage, a.r.Events = a.tap.scan.usage, 0
	if a.tap.format == events {
		a.r.Events = a.tap.scan.complete
	}
	return a.r
}

// begin reads the response's headers.
func (a *answer) begin(h Headers, eos bool) error {
	if a.headers {
		return unexpected("response headers twice")
	}
	a.headers = true
	a.r.Status, _ = strconv.Atoi(h[":status"])
	a.tap.headers(h, a.r.Status)
	a.r.Streaming = a.r.Streaming || strings.Contains(h["content-type"], "text/event-stream")
	if a.r.Streaming && a.x.s.cfg.Gaps != nil {
		a.gap = a.x.s.cfg.Gaps(a.r)
	}
	a.end(eos)
	return nil
}

// chunk takes a piece of the body at the instant now and returns what is to be sent.
func (a *answer) chunk(now time.Duration, piece []byte, eos bool) ([]byte, error) {
	if a.over {
		return nil, unexpected("response body after its end")
	}
	before := a.tap.scan.complete
	out := a.tap.pass(piece, eos)
	if n := int64(len(piece)); n > 0 {
		if a.r.ResponseBytes == 0 {
			a.r.FirstByte = now
			if a.r.Streaming {
				a.x.s.admission.FirstChunk(a.x.placement.ID)
			}
		}
		a.r.ResponseBytes += n
		a.r.LastByte = now
	}
	if a.tap.format == events && a.tap.scan.complete > before {
		if a.gap != nil && before > 0 {
			a.gap(now - a.lastStep)
		}
		a.lastStep = now
	}
	a.end(eos)
	return out, nil
}

func (a *answer) end(eos bool) {
	if eos {
		a.over, a.r.Complete = true, true
	}
}

// response answers one message of the response phase. The resources are free before the last bytes leave: whoever sees the end of the
// response and sends the next request finds them free.
func (x *exchange) response(m *extprocv3.ProcessingRequest) error {
	began := x.s.cfg.Clock.Now()
	defer func() {
		if x.placed {
			x.answer.r.Processing += x.s.cfg.Clock.Now() - began
		}
	}()
	switch r := m.GetRequest().(type) {
	case *extprocv3.ProcessingRequest_ResponseHeaders:
		h := r.ResponseHeaders
		changes := false
		if x.answer != nil {
			if err := x.answer.begin(ReadHeaders(h.GetHeaders()), h.GetEndOfStream()); err != nil {
				return err
			}
			changes = x.answer.tap.scan.mapping
		}
		if h.GetEndOfStream() {
			x.finish()
		}
		return x.send(ResponseHeadersResponse(h.GetHeaders(), changes))
	case *extprocv3.ProcessingRequest_ResponseBody:
		body, eos := r.ResponseBody.GetBody(), r.ResponseBody.GetEndOfStream()
		if x.answer != nil {
			var err error
			if body, err = x.answer.chunk(began, body, eos); err != nil {
				return err
			}
		}
		if eos {
			x.finish()
		}
		return x.send(ResponseBodyResponses(body, eos)...)
	case *extprocv3.ProcessingRequest_ResponseTrailers:
		return x.trailers()
	case *extprocv3.ProcessingRequest_RequestTrailers:
		return nil // behind a body that ended by itself; the known router answers none either
	default:
		return unexpected(fmt.Sprintf("%T in the response phase", r))
	}
}

// trailers end a response whose body has no last chunk of its own. What the tap still holds back has to go before them.
func (x *exchange) trailers() error {
	if x.answer != nil && !x.answer.over {
		rest := x.answer.tap.pass(nil, true)
		x.answer.end(true)
		x.finish()
		if len(rest) > 0 {
			if err := x.send(ResponseBodyResponses(rest, false)...); err != nil {
				return err
			}
		}
	}
	return x.send(ResponseTrailersResponse())
}
