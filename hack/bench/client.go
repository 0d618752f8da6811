package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/llm-weir/weir/harness/wire"
)

// connections is how many HTTP/2 connections share the streams, as a data plane with so many workers has.
const connections = 8

// client is the data plane's end.
type client struct {
	conns []*grpc.ClientConn
	next  atomic.Uint64
}

func dial(addr string) (*client, error) {
	c := &client{}
	for range connections {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

func (c *client) close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

// exchange is one request and its response, which is one stream.
type exchange struct {
	extprocv3.ExternalProcessor_ProcessClient
}

func (c *client) open(ctx context.Context) (exchange, error) {
	conn := c.conns[c.next.Add(1)%connections]
	s, err := extprocv3.NewExternalProcessorClient(conn).Process(ctx)
	return exchange{s}, err
}

// chat is a request body of 1 KB.
var chat = []byte(`{"model":"llama","stream":true,"max_tokens":256,"messages":[{"role":"system","content":"You answer briefly."},` +
	`{"role":"user","content":"` + strings.Repeat("The quick brown fox jumps over the lazy dog. ", 20) + `"}]}`)

// answers are the two chunks of the response.
var answers = [][]byte{
	[]byte(`data: {"id":"x","object":"chat.completion.chunk","model":"llama","choices":[{"index":0,"delta":{"content":"Hello"}}]}` + "\n\n"),
	[]byte(`data: {"id":"x","object":"chat.completion.chunk","model":"llama","choices":[],"usage":{"prompt_tokens":240,"completion_tokens":1}}` +
		"\n\ndata: [DONE]\n\n"),
}

func headers(pairs ...string) *extprocv3.HttpHeaders {
	h := &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{}}
	for i := 0; i < len(pairs); i += 2 {
		h.Headers.Headers = append(h.Headers.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return h
}

func tenant(i int) string { return "tenant-" + strconv.Itoa(i) }

// request sends the request's headers and its body.
func (x exchange) request(tenant string) error {
	h := headers(":method", "POST", ":path", "/v1/chat/completions", ":authority", "llm.example", "content-type", "application/json",
		"user-agent", "bench", "accept", "*/*", wire.HeaderRequestID, "5f0c6e0a-8d0e-4a3c-9d61-0f7f3f1d2c3b", wire.HeaderFairnessID, tenant)
	if err := x.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: h}}); err != nil {
		return err
	}
	body := &extprocv3.HttpBody{Body: chat, EndOfStream: true}
	return x.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: body}})
}

// placed waits for the destination.
func (x exchange) placed() (endpoint string, err error) {
	m, err := x.Recv()
	if err != nil {
		return "", err
	}
	if im := m.GetImmediateResponse(); im != nil {
		return "", fmt.Errorf("refused with %d: %s", im.GetStatus().GetCode(), im.GetBody())
	}
	for _, o := range m.GetRequestHeaders().GetResponse().GetHeaderMutation().GetSetHeaders() {
		if o.GetHeader().GetKey() == wire.HeaderDestination {
			return string(o.GetHeader().GetRawValue()), nil
		}
	}
	return "", fmt.Errorf("no destination in %v", m)
}

// respond plays the response and ends the stream.
func (x exchange) respond() error {
	h := headers(":status", "200", "content-type", "text/event-stream", "server", "uvicorn")
	if err := x.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: h}}); err != nil {
		return err
	}
	for i, piece := range answers {
		body := &extprocv3.HttpBody{Body: piece, EndOfStream: i == len(answers)-1}
		if err := x.Send(&extprocv3.ProcessingRequest{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: body}}); err != nil {
			return err
		}
	}
	for range 2 + len(answers) { // the request's body, the response's headers, its chunks
		if _, err := x.Recv(); err != nil {
			return err
		}
	}
	if err := x.CloseSend(); err != nil {
		return err
	}
	if _, err := x.Recv(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("the stream did not end: %w", err)
	}
	return nil
}

// whole plays one exchange from begin to end.
func (c *client) whole(ctx context.Context, tenant string) error {
	x, _, err := c.dispatched(ctx, tenant)
	if err != nil {
		return err
	}
	return x.respond()
}

// dispatched sends a request and waits for its destination.
func (c *client) dispatched(ctx context.Context, tenant string) (x exchange, endpoint string, err error) {
	if x, err = c.open(ctx); err != nil {
		return x, "", err
	}
	if err = x.request(tenant); err != nil {
		return x, "", err
	}
	endpoint, err = x.placed()
	return x, endpoint, err
}

// parallel calls do for 0 to n-1, so many at a time, and returns the first error.
func parallel(ctx context.Context, streams, n int, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(streams, n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(ctx, i); err != nil {
					cancel(fmt.Errorf("request %d: %w", i, err))
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
