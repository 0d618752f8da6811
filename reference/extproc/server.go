// Package extproc translates between Envoy's ext_proc v3 messages and the picker's requests and placements.
//
//	data plane                      stream handler                        Admission (package epp)
//	RequestHeaders ---------------> remember, Classify
//	RequestBody ... EOS ----------> ParseBody ------------ Submit ------> queue ... decided
//	<- destination, body ---------- RequestHeadersResponse <------------- Placement
//	<- ImmediateResponse ---------- Immediate <-------------------------- outcome
//	ResponseHeaders, Body ... ----> answered at once ------ FirstChunk -> accounting
//	<- ImmediateResponse 429 ------ Immediate <-------------------------- evicted
//	end of response or of stream -> ----------------------- Finish -----> accounting, exactly once
//
// Translation (headers.go, body.go, messages.go) is pure; the handler in stream.go is thin and reads nothing while its request is
// queued: there it notices only the end of the stream's context (spec/endpoint-picker.md §1.1).
package extproc

import (
	"context"
	"sync"

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
	// Evicted is closed when the request is to be stopped in flight.
	Evicted <-chan struct{}
}

// Admission is what the server needs of the picker; package epp's Driver is one.
type Admission interface {
	// Submit blocks until the request is decided. label is the harness's name of the request, for records only. Whatever ends ctx,
	// there is one outcome; for wire.Dispatched the caller owes one Finish.
	Submit(ctx context.Context, label string, r picker.Request) (Placement, wire.Outcome)
	FirstChunk(id uint64)
	Finish(id uint64)
	// Priority resolves an objective's name; 0 for an unknown one.
	Priority(objective string) int
	// Any is an endpoint for a request without a body, which is neither queued nor counted; false if the pool is empty.
	Any() (picker.Endpoint, bool)
}

// DefaultBodyLimit bounds a request body in bytes where Config names no limit.
const DefaultBodyLimit = 64 << 20

// Config is the server's configuration; the functions default to the ones of this package.
type Config struct {
	Clock    clock.Clock // the driver's clock: request times are compared with its own
	Classify func(Headers) Identity
	Refuse   func(wire.Outcome) wire.Refusal
	// BodyLimit is the largest request body in bytes; a larger one is refused with 413.
	BodyLimit int
	// RejectUnknownPaths refuses paths without a parser with 400 instead of passing them on as opaque bodies.
	RejectUnknownPaths bool
	// OnRefusal, if set, hears of each immediate response that no outcome of the queue caused.
	OnRefusal func(id Identity, model string, r wire.Refusal)
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
	if cfg.OnRefusal == nil {
		cfg.OnRefusal = func(Identity, string, wire.Refusal) {}
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.NewReal()
	}
	return &Server{admission: a, cfg: cfg}
}

// Wait returns when the goroutines of all streams have ended; call it after the gRPC server has stopped.
func (s *Server) Wait() { s.readers.Wait() }

// Process serves one stream, which is one HTTP request.
func (s *Server) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	return newExchange(s, stream).run()
}
