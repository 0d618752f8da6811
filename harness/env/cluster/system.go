package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/llm-weir/weir/harness/env/remote"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
)

// Lanes are what scenarios are played in, one in each at a time.
type Lanes struct {
	free chan *Lane
	o    remote.Options
}

// NewLanes opens the lanes in some namespaces.
func (c *Client) NewLanes(ctx context.Context, namespaces []string, o remote.Options) (*Lanes, error) {
	ls := &Lanes{free: make(chan *Lane, len(namespaces)), o: o}
	var errs []error
	for _, ns := range namespaces {
		l, err := c.OpenLane(ctx, ns)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ls.free <- l
	}
	return ls, errors.Join(errs...)
}

// System gives a system that takes a lane when it is configured.
func (ls *Lanes) System() sut.System { return &System{lanes: ls} }

// System is the picker of one scenario, in a lane.
type System struct {
	lanes *Lanes
	lane  *Lane
	inner *remote.System
	keep  func(about []string, played error)
}

// Describe implements sut.System.
func (s *System) Describe() sut.Implementation {
	o := s.lanes.o
	o.Driver, o.Running.Simulators = &Lane{}, map[string]string{"any": "http://any"} // a lane has some
	r, err := remote.New(o)
	if err != nil {
		return o.Implementation
	}
	return r.Describe()
}

// ObservesModelServers tells that what arrives at the model servers is on record.
func (s *System) ObservesModelServers() bool { return true }

// Keep lets f be called after the last step.
func (s *System) Keep(f func(about []string, played error)) { s.keep = f }

// SkewBound is how far instants of the model servers may be off.
func (s *System) SkewBound() (time.Duration, string) {
	if s.inner == nil {
		return 0, ""
	}
	return s.inner.SkewBound()
}

// Configure implements sut.System.
func (s *System) Configure(ctx context.Context, c sut.Configuration) error {
	select {
	case s.lane = <-s.lanes.free:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	o := s.lanes.o
	o.Driver, o.Running = s.lane, s.lane.Running()
	var err error
	if s.inner, err = remote.New(o); err != nil {
		return err
	}
	if s.keep != nil {
		s.inner.Keep(s.keep)
	}
	return s.inner.Configure(ctx, c)
}

// Play implements sut.System.
func (s *System) Play(ctx context.Context, script sut.Script, out evidence.Sink) error {
	err := s.inner.Play(ctx, script, out)
	if name := s.lane.picker; name != "" {
		out.File("picker.log", []byte(s.lane.log(context.WithoutCancel(ctx), name)))
	}
	return err
}

// Close implements sut.System.
func (s *System) Close(ctx context.Context) error {
	var errs []error
	if s.inner != nil {
		errs = append(errs, s.inner.Close(ctx))
	}
	if s.lane != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		errs = append(errs, s.lane.Close(ctx))
		s.lanes.free <- s.lane
		s.lane = nil
	}
	return errors.Join(errs...)
}
