package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/sim-vllm/server"
)

// sim is one simulator in another process, and a mirror of what it has recorded since it was set up.
type sim struct {
	spec    sut.Endpoint // as the scenario calls it
	own     string       // its own name
	base    string       // URL of its admin API
	address string       // host:port under which the router knows it
	client  *http.Client

	// Guarded by stage.mu.
	about   server.About // at the set-up
	offset  int64        // its clock minus that of the stage, in ns
	version uint64
	log     []evidence.Backend // in order of arrival, by its own clock
	inside  int
	scrapes int64
}

// callLimit bounds a call of the admin API, beyond what it is asked to wait.
const callLimit = 10 * time.Second

// call does one call of the admin API.
func (s *sim) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("simulator %s: %w", s.own, err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(s.base, "/")+path, body)
	if err != nil {
		return fmt.Errorf("simulator %s: %w", s.own, err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return fmt.Errorf("simulator %s: %w", s.own, explain(err))
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("simulator %s: %s: %w", s.own, path, err)
	}
	switch {
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed:
		return fmt.Errorf("simulator %s: %s has no %s: it is no simulator of ours, or one with another admin API than %s", s.own, s.base, path, server.AdminAPI)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("simulator %s: %s: %w", s.own, path, statusError(resp.StatusCode, text))
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(text, out); err != nil {
		return fmt.Errorf("simulator %s: %s answers what is no admin API: %w", s.own, s.base+path, err)
	}
	return nil
}

// bounded is a call with a limit of its own.
func (s *sim) bounded(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return s.call(ctx, method, path, in, out)
}

// known refuses a simulator whose admin API is another one.
func (s *sim) known(ctx context.Context) error {
	var a server.About
	if err := s.bounded(ctx, http.MethodGet, "/admin/about", nil, &a); err != nil {
		return err
	}
	if a.API != server.AdminAPI {
		return fmt.Errorf("simulator %s: its admin API is %q, this program speaks %q: run simulators of the same version", s.own, a.API, server.AdminAPI)
	}
	return nil
}

// setUp makes the simulator what the scenario wants, with an empty log.
func (s *sim) setUp(ctx context.Context, c sut.Configuration, preset string) error {
	if err := s.known(ctx); err != nil {
		return err
	}
	return s.bounded(ctx, http.MethodPost, "/admin/setup", server.Setup{Preset: preset, MaxSeqs: c.MaxSeqs, Hold: c.Hold, HeldAsWaiting: c.HeldAsWaiting}, &s.about)
}

// changes asks for what is newer than a version, and waits for it for so long.
func (s *sim) changes(ctx context.Context, after uint64, wait time.Duration) (server.Changes, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+callLimit)
	defer cancel()
	var c server.Changes
	q := url.Values{"after": {fmt.Sprint(after)}, "wait": {wait.String()}}
	err := s.call(ctx, http.MethodGet, "/admin/changes?"+q.Encode(), nil, &c)
	if err == nil && c.Run != s.about.Run {
		err = fmt.Errorf("simulator %s was set up again or restarted by somebody else while the scenario was played", s.own)
	}
	return c, err
}

// apply takes news in; stage.mu is held. News that is older than what is known was part of what is known.
func (s *sim) apply(c server.Changes) (news bool) {
	if c.Version < s.version {
		return false
	}
	news = c.Version > s.version
	for _, r := range c.Requests {
		for len(s.log) <= r.Index {
			s.log = append(s.log, evidence.Backend{})
		}
		s.log[r.Index] = r.Record
	}
	s.version, s.inside, s.scrapes = c.Version, c.InFlight, c.Scrapes
	return news
}

// record is a record of the simulator by the stage's clock and in the scenario's words; stage.mu is held.
func (s *sim) record(b evidence.Backend) evidence.Backend {
	for _, at := range []*int64{&b.Arrival, &b.Released, &b.FirstToken, &b.End} {
		if *at != evidence.Never {
			*at -= s.offset
		}
	}
	b.Endpoint = s.spec.Name
	b.ControlHeaders = slices.Clone(b.ControlHeaders)
	return b
}

func held(b evidence.Backend) bool {
	return b.Held && b.Released == evidence.Never && b.End == evidence.Never
}
