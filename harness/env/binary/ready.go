package binary

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// extProcService is the name under which load balancers ask for the picker itself.
const extProcService = "envoy.service.ext_proc.v3.ExternalProcessor"

// probe asks a program whether it is ready: its health service on the health port or, where it has none of its own, on the ext_proc
// port; a program without a health service is ready when its ext_proc port is open.
type probe struct {
	grpc, health int // ports; health 0: none
	tls          bool
	conns        map[int]*grpc.ClientConn
}

// ready is one look; why says what is missing.
func (p *probe) ready(ctx context.Context) (ok bool, why string) {
	if !open(ctx, p.grpc) {
		return false, fmt.Sprintf("nobody listens on its ext_proc port %d", p.grpc)
	}
	main, mainSays := p.check(ctx, p.grpc, p.tls)
	if main == broken {
		return false, fmt.Sprintf("its ext_proc port %d speaks no gRPC (%s): %s", p.grpc, p.transport(), mainSays)
	}
	switch own, says := p.own(ctx); {
	case own == serving:
		return true, ""
	case own == notServing:
		return false, says
	case main == serving:
		return true, ""
	case main == notServing:
		return false, mainSays
	case p.health != 0: // it promised a health service
		return false, says
	}
	return true, ""
}

// own asks the health service on the port of its own.
func (p *probe) own(ctx context.Context) (answer, string) {
	switch {
	case p.health == 0:
		return none, ""
	case !open(ctx, p.health):
		return none, fmt.Sprintf("nobody listens on its health port %d", p.health)
	}
	return p.check(ctx, p.health, false)
}

func (p *probe) transport() string {
	if p.tls {
		return "TLS was asked for: is it on?"
	}
	return "in plaintext: is TLS on?"
}

// answer is what a port says of health.
type answer int

const (
	serving answer = iota
	notServing
	none   // gRPC without a health service
	broken // no gRPC
)

// check asks for the health service on a port; the text says what is wrong.
func (p *probe) check(ctx context.Context, port int, secure bool) (answer, string) {
	conn, err := p.conn(port, secure)
	if err != nil {
		return broken, err.Error()
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, service := range []string{"", extProcService} {
		r, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: service})
		switch code := status.Code(err); code {
		case codes.OK:
			if r.GetStatus() == healthv1.HealthCheckResponse_SERVING {
				return serving, ""
			}
			return notServing, fmt.Sprintf("its health service on port %d says %s", port, r.GetStatus())
		case codes.NotFound: // of that name
		case codes.Unavailable, codes.DeadlineExceeded:
			return broken, fmt.Sprintf("its health service on port %d: %s", port, status.Convert(err).Message())
		default:
			return none, fmt.Sprintf("its health service on port %d: %s", port, status.Convert(err).Message())
		}
	}
	return none, fmt.Sprintf("its health service on port %d knows neither \"\" nor %s", port, extProcService)
}

// conn is the connection to a port, opened once.
func (p *probe) conn(port int, secure bool) (*grpc.ClientConn, error) {
	if c := p.conns[port]; c != nil {
		return c, nil
	}
	creds := insecure.NewCredentials()
	if secure {
		creds = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true})
	}
	c, err := grpc.NewClient("passthrough:///"+address(port), grpc.WithTransportCredentials(creds))
	if err != nil {
		return nil, err
	}
	if p.conns == nil {
		p.conns = map[int]*grpc.ClientConn{}
	}
	p.conns[port] = c
	return c, nil
}

func (p *probe) close() {
	for _, c := range p.conns {
		c.Close()
	}
}

func open(ctx context.Context, port int) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address(port))
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
