package binary

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
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
	conns        map[int]*grpc.ClientConn
}

// ready is one look; why says what is missing.
func (p *probe) ready(ctx context.Context) (ok bool, why string) {
	if !open(ctx, p.grpc) {
		return false, fmt.Sprintf("nobody listens on its ext_proc port %d", p.grpc)
	}
	if p.health != 0 && open(ctx, p.health) {
		switch ok, known, text := p.check(ctx, p.health); {
		case ok || known:
			return ok, text
		default:
			why = text
		}
	} else if p.health != 0 {
		why = fmt.Sprintf("nobody listens on its health port %d", p.health)
	}
	ok, known, text := p.check(ctx, p.grpc)
	switch {
	case known:
		return ok, text
	case p.health != 0: // it promised a health service
		return false, why
	}
	return true, ""
}

// check asks one health service; known tells whether there is one.
func (p *probe) check(ctx context.Context, port int) (ok, known bool, why string) {
	conn := p.conns[port]
	if conn == nil {
		var err error
		if conn, err = grpc.NewClient("passthrough:///"+address(port), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
			return false, false, err.Error()
		}
		if p.conns == nil {
			p.conns = map[int]*grpc.ClientConn{}
		}
		p.conns[port] = conn
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, service := range []string{"", extProcService} {
		r, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: service})
		switch code := status.Code(err); code {
		case codes.OK:
			if r.GetStatus() == healthv1.HealthCheckResponse_SERVING {
				return true, true, ""
			}
			return false, true, fmt.Sprintf("its health service on port %d says %s", port, r.GetStatus())
		case codes.NotFound: // of that name
		default:
			return false, false, fmt.Sprintf("its health service on port %d: %s", port, status.Convert(err).Message())
		}
	}
	return false, false, fmt.Sprintf("its health service on port %d knows neither \"\" nor %s", port, extProcService)
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
