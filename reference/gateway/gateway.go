// Package gateway is a small HTTP data plane that speaks ext_proc to any picker, as Envoy does with FULL_DUPLEX_STREAMED bodies.
//
//	client --HTTP--> Handler                          picker (one gRPC stream per exchange)
//	                 headers, body chunks, EOS ------> RequestHeaders, RequestBody...
//	                 destination, body <-------------- mutation | pass-through | ImmediateResponse
//	                 |
//	                 +--HTTP--> model server
//	                 |          status, chunks
//	                 v             |
//	                 response <----+--- ResponseHeaders, ResponseBody... through the picker, each chunk flushed
//
// Both dialects are understood: answers after the whole body with streamed chunks, and headers answered at once with empty body
// answers that mean "as it is". An ImmediateResponse is obeyed at any time; after the response headers have gone out it can only
// break the client's stream, which is what Envoy does too. Not here, unlike in Envoy: retries, HTTP/2 towards clients, trailers,
// flow-control windows, local rate limits.
package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/reference/extproc"
)

// Config is a gateway. The zero value of a field is what is said beside it.
type Config struct {
	// ExtProcAddr is the picker's address; any target of grpc.NewClient.
	ExtProcAddr string
	// TLS is how to talk to the picker; nil: plaintext.
	TLS *tls.Config
	// MessageTimeout is how long an answer of the picker may take, the queue included; 0: 1000 s, as in the router's charts. It has
	// to exceed the picker's wait limits.
	MessageTimeout time.Duration
	// ConnectTimeout bounds a connection to a model server; 0: 5 s.
	ConnectTimeout time.Duration
	// BodyLimit bounds a request body, and what is held of a response that the picker has not answered yet, in bytes; 0: 64 MiB.
	BodyLimit int
	// ChunkBytes is the largest body chunk sent to the picker; 0: 64 KiB, at most 2 MiB.
	ChunkBytes int
	// Connections to the picker, used in turn; 0: 1.
	Connections int
	// FailOpen forwards a request as it came when the picker fails, to FailOpenTo ("ip:port"). Otherwise the client gets a 500.
	FailOpen   bool
	FailOpenTo string
	// Observe, if set, hears of each exchange when it is over, on the exchange's goroutine.
	Observe func(Exchange)
	Clock   clock.Clock
	Logger  *slog.Logger // nil: slog.Default
	// DialOptions are added to those of the picker's connections.
	DialOptions []grpc.DialOption
}

// Exchange is what the gateway saw of one request: the wire between it and the picker.
type Exchange struct {
	ID                  string // wire.HeaderID
	RequestID           string
	HeaderDestination   string        // destination by header mutation, "" if none
	MetadataDestination string        // destination by dynamic metadata, "" if none
	Served              string        // address that took the request
	Decision            time.Duration // from the request's last body byte to the picker's answer; negative if none came
	Status              int           // status sent to the client, 0 if none
	First               time.Duration // the picker's first message, by the gateway's clock; negative if none came
	Immediate           bool          // the picker's ImmediateResponse ended it
	Reason              string        // wire.HeaderDroppedReason of an ImmediateResponse
	Broken              bool          // the client's stream was broken off after its headers
	Err                 error         // what went wrong between gateway, picker and model server
}

// Gateway forwards HTTP exchanges.
type Gateway struct {
	cfg       Config
	conns     []*grpc.ClientConn
	clients   []extprocv3.ExternalProcessorClient
	turn      chan int // the next connection to use
	transport *http.Transport
	base      context.Context
	cancel    context.CancelFunc
	tasks     sync.WaitGroup
}

// New makes a gateway; nothing is dialled before the first exchange.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	g := &Gateway{cfg: cfg, turn: make(chan int, 1)}
	transport := insecure.NewCredentials()
	if cfg.TLS != nil {
		transport = credentials.NewTLS(cfg.TLS)
	}
	for range cfg.Connections {
		opts := append([]grpc.DialOption{grpc.WithTransportCredentials(transport), redial}, cfg.DialOptions...)
		conn, err := grpc.NewClient(cfg.ExtProcAddr, opts...)
		if err != nil {
			g.closeConns()
			return nil, fmt.Errorf("picker address %q: %w", cfg.ExtProcAddr, err)
		}
		g.conns = append(g.conns, conn)
		g.clients = append(g.clients, extprocv3.NewExternalProcessorClient(conn))
	}
	g.turn <- 0
	dialer := &net.Dialer{Timeout: cfg.ConnectTimeout}
	g.transport = &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, &connectError{err}
			}
			return c, nil
		},
		MaxIdleConnsPerHost: 1024, IdleConnTimeout: 30 * time.Second, DisableCompression: true,
	}
	g.base, g.cancel = context.WithCancel(context.Background())
	return g, nil
}

// redial makes a restarted picker reachable again at once; the library's default waits a second and more.
var redial = grpc.WithConnectParams(grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
	MinConnectTimeout: 5 * time.Second,
})

// connectError is a failure before a byte was sent: the next destination of the list may be tried.
type connectError struct{ error }

func (e *connectError) Unwrap() error { return e.error }

func (c *Config) fill() error {
	var errs []error
	if c.ExtProcAddr == "" {
		errs = append(errs, errors.New("ExtProcAddr: missing"))
	}
	if c.FailOpen && c.FailOpenTo == "" {
		errs = append(errs, errors.New("FailOpenTo: missing although FailOpen is set"))
	}
	if c.ChunkBytes > 2<<20 || c.ChunkBytes < 0 {
		errs = append(errs, fmt.Errorf("ChunkBytes: must be in 1..%d, got %d", 2<<20, c.ChunkBytes))
	}
	if c.MessageTimeout <= 0 {
		c.MessageTimeout = 1000 * time.Second
	}
	if c.ConnectTimeout <= 0 {
		c.ConnectTimeout = 5 * time.Second
	}
	if c.BodyLimit <= 0 {
		c.BodyLimit = extproc.DefaultBodyLimit
	}
	if c.ChunkBytes == 0 {
		c.ChunkBytes = 64 << 10
	}
	if c.Connections <= 0 {
		c.Connections = 1
	}
	if c.Clock == nil {
		c.Clock = clock.NewReal()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return errors.Join(errs...)
}

// Ready dials the picker and returns when every connection is up, or with ctx.
func (g *Gateway) Ready(ctx context.Context) error {
	for _, c := range g.conns {
		for {
			c.Connect()
			s := c.GetState()
			if s == connectivity.Ready {
				break
			}
			if !c.WaitForStateChange(ctx, s) {
				return fmt.Errorf("picker %s is not reachable: %w", g.cfg.ExtProcAddr, context.Cause(ctx))
			}
		}
	}
	return nil
}

// Handler serves HTTP/1 clients. It breaks off a client's stream by panicking with http.ErrAbortHandler, which net/http expects.
func (g *Gateway) Handler() http.Handler { return http.HandlerFunc(g.serve) }

// Close ends what is still running and returns when it has ended. Stop the HTTP server in front first.
func (g *Gateway) Close() error {
	g.cancel()
	g.tasks.Wait()
	g.transport.CloseIdleConnections()
	return g.closeConns()
}

func (g *Gateway) closeConns() error {
	var errs []error
	for _, c := range g.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func (g *Gateway) client() extprocv3.ExternalProcessorClient {
	i := <-g.turn
	g.turn <- (i + 1) % len(g.clients)
	return g.clients[i]
}

func (g *Gateway) serve(w http.ResponseWriter, r *http.Request) {
	x := newExchange(g, w, r)
	x.run()
	if g.cfg.Observe != nil {
		g.cfg.Observe(x.seen)
	}
	if x.seen.Broken {
		panic(http.ErrAbortHandler)
	}
}
