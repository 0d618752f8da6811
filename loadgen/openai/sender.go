// Package openai sends one OpenAI-style HTTP request and records what came back: when, how much, and how it ended.
//
//	Request --Do--> POST ... headers ... data: event ... data: event ... [DONE] --> evidence.Client
//	            Sent        Headers    FirstToken      LastToken           End      one Outcome
//
// Whatever the router does is data, never an error. The sender repeats nothing, follows no redirect and queues nothing: every
// request is on the wire at most once, from the instant in its record.
package openai

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/wire"
)

// ErrCancelled is the context cause of a disconnect that the plan asks for. With any other cause the request did not end as planned.
var ErrCancelled = errors.New("planned client disconnect")

// Sender sends requests. It is safe for concurrent use.
type Sender struct {
	Client  *http.Client // NewClient
	Clock   clock.Clock  // instants of the records
	BaseURL string       // http://host:port, without the path
}

// Request is what to send.
type Request struct {
	Scenario   string
	ID         string // unique in the scenario
	Tenant     string // name of the arrival process, for messages; the record's tenant is the fairness id as sent
	FairnessID string // "" : no header
	Objective  string // "" : no header
	Path       string
	Method     string // "": POST
	Body       []byte
	Headers    map[string]string // set as given, empty values too; they win over the sender's own
	Stream     bool
	Intended   time.Duration // when it was due
	// BodyDelay withholds the last byte of the body for so long: a slow client.
	BodyDelay time.Duration
}

// ProgressKind says how far a request has come.
type ProgressKind uint8

// The kinds of progress.
const (
	SentRequest ProgressKind = iota + 1 // the request is being sent
	GotHeaders                          // the response headers are there
	GotToken                            // a token event of a stream
)

// Progress is one step of a request, told while it happens.
type Progress struct {
	ID     string
	Kind   ProgressKind
	At     time.Duration
	Status int // HTTP status; 0 before GotHeaders
}

// NewClient is an HTTP/1.1 client for many requests at a time. It keeps up to maxIdle idle connections and opens as many as it is
// asked for: a limit would queue requests inside the client, where nobody sees them wait.
func NewClient(maxIdle int) *http.Client {
	dialer := net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         dialer.DialContext,
			Proxy:               nil,
			DisableCompression:  true,
			MaxIdleConns:        maxIdle,
			MaxIdleConnsPerHost: maxIdle,
			// Shorter than the keep-alive of the servers at hand (uvicorn closes after 5 s), so that a request does not meet a
			// connection that is just being closed: nothing is retried, and the record would blame the router.
			IdleConnTimeout:     2 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second,
			Protocols:           &protocols,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Do sends r and returns when it has ended in whatever way. onProgress may be nil; it is called on Do's goroutine and delays the
// reading of the response for as long as it runs.
func (s *Sender) Do(ctx context.Context, r Request, onProgress func(Progress)) evidence.Client {
	if onProgress == nil {
		onProgress = func(Progress) {}
	}
	e := exchange{s: s, r: r, progress: onProgress, rec: evidence.Client{
		Scenario: r.Scenario, ID: r.ID, Stream: r.Stream, Intended: int64(r.Intended),
		Headers: evidence.Never, FirstToken: evidence.Never, LastToken: evidence.Never, End: evidence.Never,
		RequestBytes: int64(len(r.Body)),
	}}
	req, err := s.build(ctx, r)
	now := s.Clock.Now()
	e.rec.Sent, e.rec.Behind = int64(now), int64(now-r.Intended)
	if err != nil {
		e.rec.Sent = evidence.Never
		e.fail(ctx, evidence.TransportError, err)
	} else {
		e.rec.Tenant = sent(req.Header, wire.HeaderFairnessID, wire.HeaderFairnessIDAlias)
		e.rec.Objective = sent(req.Header, wire.HeaderObjective, wire.HeaderObjectiveAlias)
		onProgress(Progress{ID: r.ID, Kind: SentRequest, At: now})
		e.roundTrip(ctx, req)
	}
	// Hashed last: a large body takes milliseconds, which must not lie between the due instant and the sending.
	sum := sha256.Sum256(r.Body)
	e.rec.BodySHA256 = hex.EncodeToString(sum[:])
	return e.rec
}

func (s *Sender) build(ctx context.Context, r Request) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, cmp.Or(r.Method, http.MethodPost), strings.TrimSuffix(s.BaseURL, "/")+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", r.ID, err)
	}
	// Without GetBody the transport cannot send the body a second time, so it never repeats a request by itself.
	req.GetBody = nil
	if r.BodyDelay > 0 && len(r.Body) > 0 {
		req.Body = &slowBody{ctx: ctx, rest: r.Body, delay: r.BodyDelay}
	}
	set := func(name, value string) { req.Header[textproto.CanonicalMIMEHeaderKey(name)] = []string{value} }
	set("content-type", "application/json")
	set("user-agent", "weir")
	set(wire.HeaderID, r.ID)
	if r.Scenario != "" {
		set(wire.HeaderScenario, r.Scenario)
	}
	if r.Objective != "" {
		set(wire.HeaderObjective, r.Objective)
	}
	if r.FairnessID != "" {
		set(wire.HeaderFairnessID, r.FairnessID)
	}
	for name, value := range r.Headers {
		set(name, value)
	}
	return req, nil
}

// exchange is one request under way.
type exchange struct {
	s        *Sender
	r        Request
	rec      evidence.Client
	progress func(Progress)
}

func (e *exchange) roundTrip(ctx context.Context, req *http.Request) {
	resp, err := e.s.Client.Do(req)
	if err != nil {
		e.fail(ctx, evidence.TransportError, err)
		return
	}
	defer resp.Body.Close()
	now := e.s.Clock.Now()
	e.rec.Headers, e.rec.Status = int64(now), resp.StatusCode
	e.rec.Reason, e.rec.Endpoint = resp.Header.Get(wire.HeaderDroppedReason), resp.Header.Get(wire.HeaderServedBy)
	e.progress(Progress{ID: e.r.ID, Kind: GotHeaders, At: now, Status: resp.StatusCode})
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		e.refusal(ctx, resp.Body)
	case e.r.Headers[wire.HeaderAnswer] != "":
		e.whole(ctx, resp.Body)
	case e.r.Stream || isEventStream(resp.Header):
		e.stream(ctx, resp)
	default:
		e.whole(ctx, resp.Body)
	}
}

func isEventStream(h http.Header) bool {
	kind, _, err := mime.ParseMediaType(h.Get("content-type"))
	return err == nil && kind == "text/event-stream"
}

// refusal reads a non-2xx response. One that breaks off is no complete answer and says nothing about what the router decided.
func (e *exchange) refusal(ctx context.Context, body io.Reader) {
	head, err := e.read(body, maxText)
	e.rec.Text = string(bytes.ToValidUTF8(head, []byte("?")))
	if err != nil {
		e.fail(ctx, evidence.TransportError, err)
		return
	}
	e.end(evidence.Refused)
}

// whole reads a 2xx response that is no stream. It has to be JSON: a response that is delimited by the end of the connection
// shows a break-off in no other way.
func (e *exchange) whole(ctx context.Context, body io.Reader) {
	data, err := e.read(body, maxWhole)
	if err != nil {
		e.fail(ctx, evidence.KilledMidStream, err)
		return
	}
	if e.r.Headers[wire.HeaderAnswer] != "" { // an odd answer is judged by its bytes
		sum := sha256.Sum256(data)
		e.rec.AnswerSHA256 = hex.EncodeToString(sum[:])
		e.end(evidence.Completed)
		return
	}
	var broken string
	if e.rec.ResponseBytes > maxWhole {
		broken = fmt.Sprintf("response is longer than %d bytes", maxWhole)
	} else {
		c := parseChunk(data)
		e.rec.Tokens = max(0, c.usage)
		broken = c.broken
	}
	if broken != "" {
		e.spoilt(broken)
		return
	}
	e.end(evidence.Completed)
}

// Bounds of what is kept of a response; the rest is counted and thrown away.
const (
	maxText  = 300
	maxWhole = 16 << 20
)

// read reads to the end, counts every byte and keeps the first ones.
func (e *exchange) read(body io.Reader, keep int) ([]byte, error) {
	var kept bytes.Buffer
	n, err := io.Copy(&kept, io.LimitReader(body, int64(keep)))
	e.rec.ResponseBytes += n
	if err != nil {
		return kept.Bytes(), err
	}
	n, err = io.Copy(io.Discard, body)
	e.rec.ResponseBytes += n
	return kept.Bytes(), err
}

func (e *exchange) end(outcome string) {
	e.rec.Outcome, e.rec.End = outcome, int64(e.s.Clock.Now())
}

// spoilt ends a response that was read to its end and is not what it should be.
func (e *exchange) spoilt(text string) {
	e.end(evidence.KilledMidStream)
	e.rec.Error = text[:min(len(text), maxText)]
}

// fail ends the request with err. Who ended it is asked of the context first, because a cancelled request fails with whatever
// error the transport was at.
func (e *exchange) fail(ctx context.Context, outcome string, err error) {
	text := err.Error()
	if ctx.Err() != nil {
		cause := context.Cause(ctx)
		switch {
		case errors.Is(cause, ErrCancelled):
			outcome, text = evidence.ClientCancelled, ""
		case errors.Is(cause, context.DeadlineExceeded):
			outcome, text = evidence.TransportError, "timed out"
		default:
			outcome, text = evidence.TransportError, "stopped: "+cause.Error()
		}
	}
	e.end(outcome)
	e.rec.Error = text[:min(len(text), maxText)]
}

// sent is the value under the first of the names that is on the wire.
func sent(h http.Header, names ...string) string {
	for _, n := range names {
		if v, ok := h[http.CanonicalHeaderKey(n)]; ok && len(v) > 0 {
			return v[0]
		}
	}
	return ""
}
