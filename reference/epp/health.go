package epp

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// extProcService is the name under which load balancers ask for the picker itself.
const extProcService = "envoy.service.ext_proc.v3.ExternalProcessor"

// Readiness is what has to hold beside "not draining" for the picker to be ready; nil functions hold always.
type Readiness struct {
	Synced  func() bool // the pool is known
	Leading func() bool // this replica leads; nil without leader election
}

// healthServer tells whether the picker is ready (spec/endpoint-picker.md §1.8). Without leader election every service name gets the
// same answer; with it liveness always serves and names it does not know are unknown. Watch is unimplemented, as in the router.
type healthServer struct {
	healthv1.UnimplementedHealthServer
	ready    Readiness
	draining atomic.Bool
}

func (h *healthServer) serving() bool {
	return !h.draining.Load() && (h.ready.Synced == nil || h.ready.Synced()) && (h.ready.Leading == nil || h.ready.Leading())
}

func answer(serving bool) *healthv1.HealthCheckResponse {
	if serving {
		return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVING}
	}
	return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_NOT_SERVING}
}

// Check implements the health service.
func (h *healthServer) Check(_ context.Context, r *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	if h.ready.Leading == nil {
		return answer(h.serving()), nil
	}
	switch r.GetService() {
	case "liveness":
		return answer(true), nil
	case "", "readiness", extProcService:
		return answer(h.serving()), nil
	}
	return nil, status.Errorf(codes.NotFound, "unknown service %q", r.GetService())
}

// List implements the health service.
func (h *healthServer) List(context.Context, *healthv1.HealthListRequest) (*healthv1.HealthListResponse, error) {
	r := answer(h.serving())
	return &healthv1.HealthListResponse{Statuses: map[string]*healthv1.HealthCheckResponse{"": r, extProcService: r}}, nil
}
