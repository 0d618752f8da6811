// Command tinyepp is a picker that is deliberately unlike the reference: one queue, first come first served, no priorities, no tenants,
// no time limit, no metrics, no look at model servers and no opinion about its configuration. It chooses an endpoint as soon as it has
// seen the headers of a request, and lets bodies pass with empty answers.
//
//	ext_proc stream --headers--> queue --slot free--> endpoint header ... stream ends --> slot free
//
// It has what its code says: a limit of requests in flight (maxConcurrency of the document, for each endpoint), a limit of waiting ones
// (flowControl.maxRequests), an order, endpoints that come and go, and clients that leave the queue. The harness must fail it for
// everything else and for nothing of that.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/llm-weir/weir/harness/clock"
)

func main() {
	config := flag.String("config", "", "EndpointPickerConfig document")
	endpoints := flag.String("endpoints", "", "file with the endpoints, read again when it changes")
	port := flag.Int("port", 9002, "port of ext_proc")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *config, *endpoints, *port); err != nil {
		fmt.Fprintln(os.Stderr, "tinyepp:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, config, endpoints string, port int) error {
	p := &picker{}
	if err := p.configure(config); err != nil {
		return err
	}
	p.read(endpoints)
	ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	extprocv3.RegisterExternalProcessorServer(s, p)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for clock.Sleep(ctx, 50*time.Millisecond) {
			p.read(endpoints)
		}
		s.Stop()
	})
	err = s.Serve(ln)
	tasks.Wait()
	return err
}

// ticket is one request.
type ticket struct {
	turn    chan string // the endpoint, once it is its turn
	address string
}

// picker is the queue and what it knows of endpoints.
type picker struct {
	extprocv3.UnimplementedExternalProcessorServer

	perEndpoint int // requests in flight; 0: no limit
	waiting     int // requests in the queue; 0: no limit

	mu     sync.Mutex
	text   []byte // of the endpoints file
	pool   []string
	flying map[string]int
	queue  []*ticket
	next   int // endpoint that is looked at first
}

// configure takes two numbers out of the document and ignores the rest.
func (p *picker) configure(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var doc struct {
		Plugins []struct {
			Parameters struct {
				MaxConcurrency int `yaml:"maxConcurrency"`
			} `yaml:"parameters"`
		} `yaml:"plugins"`
		FlowControl struct {
			MaxRequests string `yaml:"maxRequests"`
		} `yaml:"flowControl"`
	}
	_ = yaml.Unmarshal(text, &doc) // it starts with anything
	for _, plugin := range doc.Plugins {
		p.perEndpoint = max(p.perEndpoint, plugin.Parameters.MaxConcurrency)
	}
	p.waiting, _ = strconv.Atoi(doc.FlowControl.MaxRequests)
	p.flying = map[string]int{}
	return nil
}

// read takes the endpoints over if the file has changed.
func (p *picker) read(file string) {
	text, err := os.ReadFile(file)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil || bytes.Equal(text, p.text) {
		return
	}
	var doc struct {
		Endpoints []struct{ Address, Port string }
	}
	if yaml.Unmarshal(text, &doc) != nil {
		return
	}
	p.text, p.pool = text, nil
	for _, e := range doc.Endpoints {
		p.pool = append(p.pool, net.JoinHostPort(e.Address, e.Port))
	}
	p.serve()
}

// serve gives turns as long as there are free slots, the oldest request first. The lock is held.
func (p *picker) serve() {
	for len(p.queue) > 0 {
		address := p.free()
		if address == "" {
			return
		}
		t := p.queue[0]
		p.queue = p.queue[1:]
		t.address = address
		p.flying[address]++
		t.turn <- address
	}
}

// free is an endpoint with a free slot, "" if there is none. The lock is held.
func (p *picker) free() string {
	for i := range p.pool {
		at := (p.next + i) % len(p.pool)
		if address := p.pool[at]; p.perEndpoint == 0 || p.flying[address] < p.perEndpoint {
			p.next = at + 1
			return address
		}
	}
	return ""
}

// enter puts a request into the queue; nil if it is full.
func (p *picker) enter() *ticket {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting > 0 && len(p.queue) >= p.waiting {
		return nil
	}
	t := &ticket{turn: make(chan string, 1)}
	p.queue = append(p.queue, t)
	p.serve()
	return t
}

// leave ends a request, wherever it is.
func (p *picker) leave(t *ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.address != "" {
		p.flying[t.address]--
	} else {
		p.queue = slices.DeleteFunc(p.queue, func(other *ticket) bool { return other == t })
	}
	p.serve()
}

// Process handles one HTTP exchange.
func (p *picker) Process(s extprocv3.ExternalProcessor_ProcessServer) error {
	var mine *ticket
	defer func() {
		if mine != nil {
			p.leave(mine)
		}
	}()
	for {
		m, err := s.Recv()
		if err != nil {
			return nil // the exchange is over
		}
		var out *extprocv3.ProcessingResponse
		switch {
		case m.GetRequestHeaders() != nil && mine == nil:
			if mine = p.enter(); mine == nil {
				return s.Send(full())
			}
			select {
			case address := <-mine.turn:
				out = chosen(address)
			case <-s.Context().Done():
				return status.FromContextError(s.Context().Err()).Err()
			}
		case m.GetRequestBody() != nil:
			out = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{}}}
		case m.GetRequestTrailers() != nil:
			out = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}}
		case m.GetResponseHeaders() != nil:
			out = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}}
		case m.GetResponseBody() != nil:
			out = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{}}}
		case m.GetResponseTrailers() != nil:
			out = &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}}
		default:
			return status.Error(codes.InvalidArgument, "unknown message")
		}
		if err := s.Send(out); err != nil {
			return err
		}
	}
}

// chosen answers the headers of a request with its endpoint.
func chosen(address string) *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
		Response: &extprocv3.CommonResponse{HeaderMutation: set("x-gateway-destination-endpoint", address)}}}}
}

// full refuses a request that finds the queue full.
func full() *extprocv3.ProcessingResponse {
	return &extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_ImmediateResponse{ImmediateResponse: &extprocv3.ImmediateResponse{
		Status: &typev3.HttpStatus{Code: typev3.StatusCode_TooManyRequests}, Headers: set("x-llm-d-request-dropped-reason", "rejected-saturated"),
		Body: []byte("the queue is full")}}}
}

func set(name, value string) *extprocv3.HeaderMutation {
	return &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD}}}
}
