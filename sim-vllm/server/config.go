package server

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/sim-vllm/engine"
)

const (
	// maxBodyBytes bounds one request body.
	maxBodyBytes = 64 << 20
	// defaultOutputTokens is the output of a chat request that sets no limit: the model stops by itself there.
	defaultOutputTokens = 16
	// defaultModel is the model's name where the configuration gives none.
	defaultModel = "weir-sim"
	// version is what /version answers.
	version = "0.28.0"
)

// Config is one simulated server.
type Config struct {
	// Name is the endpoint name; responses carry it in wire.HeaderServedBy, records in Endpoint.
	Name string
	// Model is the only model served; "" accepts any.
	Model string
	// Engine is the model of scheduling and time, from package presets.
	Engine engine.Config
	// MaxModelLen overrides Engine.MaxModelLen; 0: it stays.
	MaxModelLen int
	// Clock gives the instants of the records; nil: a real clock with its epoch in New.
	Clock clock.Clock
	// ClockID names the clock: servers that answer the same one share it; "": a name that no other server has.
	ClockID string
	// Hold makes requests wait for their release instead of entering the engine. SetHold changes it.
	Hold bool
	// HeldAsWaiting counts held requests in num_requests_waiting instead of num_requests_running.
	HeldAsWaiting bool
	// OnEvent is called after anything that Log, Held, InFlight or Scrapes can show has changed, and after each control call. No
	// lock is held; calls may come from several goroutines at once. nil: nobody listens.
	OnEvent func()
}

// Load is a scripted set of gauges.
type Load struct {
	Waiting float64 `json:"waiting"`
	Running float64 `json:"running"`
	KV      float64 `json:"kv"` // 0..1
}

// MetricsFault is what is wrong with the metrics page.
type MetricsFault string

// The faults of the metrics page.
const (
	FaultNone     MetricsFault = "none"
	FaultFreeze   MetricsFault = "freeze"   // the page as it was when the fault was set
	FaultDrop     MetricsFault = "drop"     // 200 without any vllm series, as with --disable-log-stats
	FaultError500 MetricsFault = "error500" // status 500
	FaultHang     MetricsFault = "hang"     // no answer until the fault changes or the scraper leaves
	FaultUntyped  MetricsFault = "untyped"  // the series without TYPE lines
)

// MetricsFaults lists the faults.
func MetricsFaults() []MetricsFault {
	return []MetricsFault{FaultNone, FaultFreeze, FaultDrop, FaultError500, FaultHang, FaultUntyped}
}

func (f MetricsFault) validate() error {
	for _, known := range MetricsFaults() {
		if f == known {
			return nil
		}
	}
	return fmt.Errorf("unknown metrics fault %q, known are %v", f, MetricsFaults())
}

func validateStatus(status int) error {
	if status != 0 && (status < 400 || status > 599) {
		return fmt.Errorf("status %d is neither 0 nor an error status (400..599)", status)
	}
	return nil
}

func (c Config) validate() error {
	var errs []error
	if c.MaxModelLen < 0 {
		errs = append(errs, fmt.Errorf("MaxModelLen is %d, must not be negative", c.MaxModelLen))
	}
	for _, r := range c.Name {
		if r < ' ' || r > '~' {
			errs = append(errs, fmt.Errorf("name %q cannot be a header value", c.Name))
			break
		}
	}
	return errors.Join(errs...)
}

// named puts the endpoint's name on every response.
func (s *Server) named(next http.Handler, header string) http.Handler {
	if s.cfg.Name == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(header, s.cfg.Name)
		next.ServeHTTP(w, r)
	})
}
