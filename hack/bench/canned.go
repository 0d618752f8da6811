package main

import (
	"context"
	"fmt"
	"net"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"

	"github.com/llm-weir/weir/reference/extproc"
)

// serveCanned serves the answers of a picker without being one: what it costs is the price of gRPC and of the messages.
func serveCanned(ctx context.Context) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	extprocv3.RegisterExternalProcessorServer(s, cannedServer{})
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	fmt.Println("ext_proc", ln.Addr())
	return s.Serve(ln)
}

type cannedServer struct {
	extprocv3.UnimplementedExternalProcessorServer
}

// Process answers the messages of one exchange.
func (cannedServer) Process(stream extprocv3.ExternalProcessor_ProcessServer) error {
	var received *extprocv3.HttpHeaders
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // a peer that leaves is no error
		}
		var out []*extprocv3.ProcessingResponse
		switch r := m.GetRequest().(type) {
		case *extprocv3.ProcessingRequest_RequestHeaders:
			received = r.RequestHeaders
		case *extprocv3.ProcessingRequest_RequestBody:
			body := r.RequestBody.GetBody()
			out = append(out, extproc.RequestHeadersResponse("10.0.0.1:80", len(body), received.GetHeaders(), nil))
			out = append(out, extproc.RequestBodyResponses(body, true)...)
		case *extprocv3.ProcessingRequest_ResponseHeaders:
			out = append(out, extproc.ResponseHeadersResponse(r.ResponseHeaders.GetHeaders(), false))
		case *extprocv3.ProcessingRequest_ResponseBody:
			out = append(out, extproc.ResponseBodyResponses(r.ResponseBody.GetBody(), r.ResponseBody.GetEndOfStream())...)
		}
		for _, o := range out {
			if err := stream.Send(o); err != nil {
				return err
			}
		}
	}
}
