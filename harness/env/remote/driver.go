package remote

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"

	"google.golang.org/grpc"

	"github.com/llm-weir/weir/harness/sut"
)

// Driver does to a picker what the commands of a descriptor do: it is how an environment with an API of its own brings scenarios to a picker there.
// Everything that it is told of stands until it is told otherwise.
type Driver interface {
	// Configure brings a picker up with what a scenario wants, and returns when it serves.
	Configure(ctx context.Context, w Wanted) (Reach, error)
	// Update changes objectives and pool under a picker that serves, and returns when it can have heard of it.
	Update(ctx context.Context, w Wanted) error
	// Stop ends the picker gracefully, and returns when it has ended. Start brings it up again as it was.
	Stop(ctx context.Context) error
	Start(ctx context.Context) (Reach, error)
	// Try brings a second picker up with a document, and ends it. stable leaves out the flag that admits alpha plugins. One that does not come
	// up is a *binary.StartError.
	Try(ctx context.Context, document string, stable bool) error
}

// Wanted is what a scenario wants a picker to know.
type Wanted struct {
	Scenario   string
	Document   string
	Objectives map[string]int
	Objects    []sut.Objective
	Members    []Member
}

// Member is a model server in the pool. Own is what its environment calls it, Name what the scenario does.
type Member struct {
	Own, Name, Role string
}

// Reach is where a picker is: host:port of ext_proc and health, URL of its metrics page.
type Reach struct {
	Front, Health, Metrics string
}

// has tells whether what a command of a descriptor would do can be done.
func (s *System) has(field string) bool { return s.opts.Driver != nil || s.hooks[field] != nil }

// drive has the driver do what the command of a field would.
func (st *stage) drive(ctx context.Context, field, document string, stable bool) error {
	d, w := st.sys.opts.Driver, st.wanted(document)
	ctx, cancel := context.WithTimeoutCause(ctx, st.limit(), fmt.Errorf("not done within %s", st.limit()))
	defer cancel()
	switch field {
	case "command":
		r, err := d.Configure(ctx, w)
		st.sys.reached(r)
		return err
	case "update":
		return d.Update(ctx, w)
	case "stop":
		return d.Stop(ctx)
	case "start":
		r, err := d.Start(ctx)
		st.sys.reached(r)
		return err
	}
	return d.Try(ctx, document, stable)
}

func (st *stage) wanted(document string) Wanted {
	w := Wanted{Scenario: st.scenario, Document: document, Objectives: maps.Clone(st.sys.cfg.Objectives), Objects: slices.Clone(st.sys.cfg.Objects)}
	for _, name := range st.member {
		if sm := st.sim(name); sm != nil {
			w.Members = append(w.Members, Member{Own: sm.own, Name: name, Role: sm.spec.Role})
		}
	}
	return w
}

// reached takes over where the picker is from now on.
func (s *System) reached(r Reach) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = r
}

// reach is where the picker is.
func (s *System) reach() Reach {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// dialer leads each new connection to where the picker is then.
func (s *System) dialer() grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", s.reach().Front)
	})
}

// Deploy implements sut.Deployer.
func (st *stage) Deploy(ctx context.Context, s sut.Step) (string, error) {
	if st.sys.opts.Deploy == nil {
		return "", &sut.UnsupportedError{Feature: sut.Deployed}
	}
	return st.sys.opts.Deploy(ctx, s)
}
