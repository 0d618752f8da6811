package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/loadgen/openai"
	"github.com/llm-weir/weir/reference/gateway"
)

// several pickers serve one pool. They know nothing of each other but what they may tell themselves of their load; what is asked of the router is asked of the first, what it is told all
// are told.
type several struct {
	router // the first
	others []router
	failed chan struct{}
}

// startRouters brings up as many as the configuration wants.
func (st *stage) startRouters(ctx context.Context) (router, error) {
	if st.sys.cfg.SyncLoad {
		var err error
		if st.exchange, err = openExchange(max(1, st.sys.cfg.Pickers)); err != nil {
			return nil, err
		}
	}
	first, err := st.startRouter(ctx, 0)
	if err != nil || st.sys.cfg.Pickers < 2 {
		return first, err
	}
	s := &several{router: first, failed: make(chan struct{})}
	for i := range st.sys.cfg.Pickers - 1 {
		r, err := st.startRouter(ctx, i+1)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.others = append(s.others, r)
	}
	st.tasks.Go(func() { s.watch(st.base) })
	return s, nil
}

// each does f with every one.
func (s *several) each(f func(router) error) error {
	err := f(s.router)
	for _, r := range s.others {
		err = errors.Join(err, f(r))
	}
	return err
}

// watch closes failed when one of them has.
func (s *several) watch(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first := make(chan struct{}, len(s.others)+1)
	_ = s.each(func(r router) error {
		go func() {
			select {
			case <-r.Failed():
				first <- struct{}{}
			case <-ctx.Done():
			}
		}()
		return nil
	})
	select {
	case <-first:
		close(s.failed)
	case <-ctx.Done():
	}
}

// SetMembers implements router.
func (s *several) SetMembers(ctx context.Context, members []*sim) error {
	return s.each(func(r router) error { return r.SetMembers(ctx, members) })
}

// SetObjectives implements router.
func (s *several) SetObjectives(ctx context.Context, objectives map[string]int, objects []sut.Objective) error {
	return s.each(func(r router) error { return r.SetObjectives(ctx, objectives, objects) })
}

// Shutdown implements router.
func (s *several) Shutdown(ctx context.Context) error {
	return s.each(func(r router) error { return r.Shutdown(ctx) })
}

// Restart implements router.
func (s *several) Restart(ctx context.Context) error {
	return s.each(func(r router) error { return r.Restart(ctx) })
}

// Failed implements router.
func (s *several) Failed() <-chan struct{} { return s.failed }

// Failure implements router.
func (s *several) Failure() error { return s.each(router.Failure) }

// Close implements router.
func (s *several) Close() error { return s.each(router.Close) }

// pickers lists the pickers one by one.
func (st *stage) pickers() []router {
	if s, ok := st.router.(*several); ok {
		return append([]router{s.router}, s.others...)
	}
	return []router{st.router}
}

// door is a gateway in front of one picker, and how to send to it.
type door struct {
	gateway *gateway.Gateway
	front   *http.Server
	sender  *openai.Sender
}

// openDoors puts a gateway in front of each picker.
func (st *stage) openDoors() error {
	toPicker, err := gateway.PickerTLS("", st.sys.opts.TLS)
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	client := openai.NewClient(256)
	for _, r := range st.pickers() {
		g, err := gateway.New(gateway.Config{ExtProcAddr: r.GRPCAddr(), TLS: toPicker, Clock: st.Clock, Observe: st.exchanged, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return fmt.Errorf("gateway: %w", err)
		}
		d := &door{gateway: g}
		st.doors = append(st.doors, d)
		ln, err := net.Listen("tcp", loopback)
		if err != nil {
			return fmt.Errorf("gateway: %w", err)
		}
		d.front = serve(&st.tasks, ln, st.counted(g.Handler()))
		d.sender = &openai.Sender{Client: client, Clock: st.Clock, BaseURL: "http://" + ln.Addr().String()}
	}
	return nil
}

// sender sends to the picker of that number.
func (st *stage) sender(picker int) *openai.Sender {
	return st.doors[min(picker, len(st.doors)-1)].sender
}
