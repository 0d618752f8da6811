package epp

import (
	"testing"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// FC-PROTO-14, spec §1.8: who is ready when.
func TestHealthAnswers(t *testing.T) {
	synced, leading := false, false
	h := &healthServer{ready: Readiness{Synced: func() bool { return synced }}}
	check := func(service string) string {
		r, err := h.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
		if status.Code(err) == codes.NotFound {
			return "unknown"
		}
		return r.GetStatus().String()
	}
	for _, row := range []struct {
		says             string
		synced, leading  bool
		draining, elects bool
		service, want    string
	}{
		{"before the pool is known nothing is ready", false, false, false, false, "", "NOT_SERVING"},
		{"without election every name gets one answer", true, false, false, false, "anything", "SERVING"},
		{"a drain ends readiness", true, false, true, false, "", "NOT_SERVING"},
		{"liveness too, without election", true, false, true, false, "liveness", "NOT_SERVING"},
		{"a follower is not ready", true, false, false, true, "readiness", "NOT_SERVING"},
		{"a leader is", true, true, false, true, extProcService, "SERVING"},
		{"with election liveness always serves", false, false, true, true, "liveness", "SERVING"},
		{"and other names are unknown", true, true, false, true, "anything", "unknown"},
	} {
		synced, leading = row.synced, row.leading
		h.draining.Store(row.draining)
		h.ready.Leading = nil
		if row.elects {
			h.ready.Leading = func() bool { return leading }
		}
		if got := check(row.service); got != row.want {
			t.Errorf("%s: %s, want %s", row.says, got, row.want)
		}
	}
}
