// Package extproc translates between Envoy's ext_proc v3 messages and the picker's requests and placements.
//
//	data plane                      stream handler                        Admission (package epp)
//	RequestHeaders ---------------> remember, Classify
//	RequestBody ... EOS ----------> ParseBody ------------ Submit ------> queue ... decided
//	<- destination, body ---------- RequestHeadersResponse <------------- Placement
//	<- ImmediateResponse ---------- Immediate <-------------------------- outcome
//	ResponseHeaders, Body ... ----> tap: usage, model ----- FirstChunk -> accounting
//	<- ImmediateResponse 429 ------ Immediate <-------------------------- evicted
//	end of response or of stream -> ----------------------- FinishWith -> accounting, exactly once
//
// Translation (headers.go, body.go, messages.go, rewrite.go, tap.go) is pure; the handler in stream.go is thin and reads nothing while
// its request is queued: there it notices only the end of the stream's context (spec/endpoint-picker.md §1.1). A half-close is none,
// a deadline of the stream is one and counts as a client that left.
package extproc

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/picker"
)

// Placement is a dispatched request: where it goes, and the signal that it is to be stopped.
type Placement struct {
	ID        uint64
	Endpoint  picker.Endpoint
	Fallbacks []picker.Endpoint
	// Evicted is closed when the request is to be stopped in flight; nil: it never is.
	Evicted <-chan struct{}
}

// Submission is a request and what only records need of it.
type Submission struct {
	Label    string // the harness's name of the request
	Incoming string // the model that the client asked for; Request.Model is the one that serves
	Request  picker.Request
}

// Admission is what the server needs of the picker; package epp's Driver is one.
type Admission interface {
	// Submit blocks until the request is decided. Whatever ends ctx, there is one outcome; for wire.Dispatched the caller owes one
	// FinishWith.
	Submit(ctx context.Context, s Submission) (Placement, wire.Outcome)
	FirstChunk(id uint64)
	// FinishWith ends a dispatched request; u is what its response said of its tokens.
	FinishWith(id uint64, u picker.Usage)
	// Priority resolves an objective's name; 0 for an unknown one.
	Priority(objective string) int
	// Any is an endpoint for a request without a body, which is neither queued nor counted; false if the pool is empty.
	Any() (picker.Endpoint, bool)
}

// Limits where Config names none.
const (
	DefaultBodyLimit   = 64 << 20  // bytes of a request body
	DefaultHeaderLimit = 256 << 10 // bytes of a request's headers, names and values
)

// Report is one dispatched request when it is over.
type Report struct {
	Identity  Identity
	Model     string // as the client asked
	Target    string // as served
	Priority  int
	Streaming bool // answered as, or asked for as, an event stream
	Status    int  // of the model server's answer; 0 if none came
	Complete  bool // the answer came to its end
	// RequestBytes are those of the body as received, ResponseBytes those of the body as the model server sent it.
	RequestBytes, ResponseBytes int64
	Usage                       Usage
	Events                      int           // documents of an event stream
	Received                    time.Duration // when the request's headers were received, on the server's clock
	Answered                    time.Duration // when the request phase was answered
	FirstByte, LastByte         time.Duration // of the response body; valid if ResponseBytes > 0
	Processing                  time.Duration // spent on the response's messages
	Ended                       time.Duration
}

// Config is the server's configuration; the functions default to the ones of this package.
type Config struct {
	Clock    clock.Clock // the driver's clock: request times are compared with its own
	Classify func(Headers) Identity
	Refuse   func(wire.Outcome) wire.Refusal
	// BodyLimit is the largest request body in bytes; a larger one is refused with 413. HeaderLimit is the same for the headers, 431.
	BodyLimit   int
	HeaderLimit int
	// Prefix cuts prompts into blocks for the prefix scorer; the zero value hashes nothing.
	Prefix PrefixConfig
	// Rewriter changes the model of a request; nil: only the header does.
	Rewriter *Rewriter
	// KeepControlHeaders lets the model server see the control headers, as the known router does.
	KeepControlHeaders bool
	// NewRequestID names a request that has no x-request-id; nil: a random UUID.
	NewRequestID func() string
	// RejectUnknownPaths refuses paths without a parser with 400 instead of passing them on as opaque bodies.
	RejectUnknownPaths bool
	// OnRefusal, if set, hears of each immediate response that no outcome of the queue caused.
	OnRefusal func(id Identity, model string, r wire.Refusal)
	// OnReport, if set, hears of each dispatched request when it is over.
	OnReport func(Report)
	// OnParse hears how long a parser took, OnRewrite of each rule that was applied.
	OnParse   func(parser string, took time.Duration)
	OnRewrite func(rule, model, target string)
	// Gaps, if set, is asked once per event stream and told the time between any two chunks that completed an event.
	Gaps func(r Report) func(time.Duration)
}

// Server is the ext_proc service.
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer
	admission Admission
	cfg       Config
	readers   sync.WaitGroup
}

// NewServer makes the service; register it with extprocv3.RegisterExternalProcessorServer.
func NewServer(a Admission, cfg Config) *Server {
	if cfg.Classify == nil {
		cfg.Classify = Classify
	}
	if cfg.Refuse == nil {
		cfg.Refuse = func(o wire.Outcome) wire.Refusal { return wire.Refuse(o, 429) }
	}
	if cfg.BodyLimit <= 0 {
		cfg.BodyLimit = DefaultBodyLimit
	}
	if cfg.HeaderLimit <= 0 {
		cfg.HeaderLimit = DefaultHeaderLimit
	}
	if cfg.NewRequestID == nil {
		cfg.NewRequestID = newRequestID
	}
	if cfg.OnRefusal == nil {
		cfg.OnRefusal = func(Identity, string, wire.Refusal) {}
	}
	if cfg.OnReport == nil {
		cfg.OnReport = func(Report) {}
	}
	if cfg.OnParse == nil {
		cfg.OnParse = func(string, time.Duration) {}
	}
	if cfg.OnRewrite == nil {
		cfg.OnRewrite = func(string, string, string) {}
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.NewReal()
	}
	return &Server{admission: a, cfg: cfg}
}

// newRequestID is a random UUID.
func newRequestID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// Wait returns when the goroutines of all streams have ended; call it after the gRPC server has stopped.
func (s *Server) Wait() { s.readers.Wait() }

// Process serves one stream, which is one HTTP request.
func (s *Server) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	return newExchange(s, stream).run()
}
