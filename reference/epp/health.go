package epp

import (
	"context"
	"sync/atomic"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// healthServer gives every service name the same answer: SERVING until the drain begins (spec/endpoint-picker.md §1.8). Watch is
// unimplemented, as in the router.
type healthServer struct {
	healthv1.UnimplementedHealthServer
	draining atomic.Bool
}

func (h *healthServer) status() *healthv1.HealthCheckResponse {
	if h.draining.Load() {
		return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_NOT_SERVING}
	}
	return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_SERVING}
}

// Check implements the health service.
func (h *healthServer) Check(context.Context, *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	return h.status(), nil
}

// List implements the health service.
func (h *healthServer) List(context.Context, *healthv1.HealthListRequest) (*healthv1.HealthListResponse, error) {
	const service = "envoy.service.ext_proc.v3.ExternalProcessor"
	return &healthv1.HealthListResponse{Statuses: map[string]*healthv1.HealthCheckResponse{"": h.status(), service: h.status()}}, nil
}
