// Package scrape polls model servers' metrics and turns them into samples of their load.
//
//	endpoint --GET /metrics--> Parse --> picker.Load{At: begin of the scrape} --> sink
//	   one goroutine each       |
//	                            a family that is absent or untyped is missing, never 0
//
// A failed scrape yields a Load that is not OK: the last values stay and grow stale.
package scrape

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/reference/picker"
)

// Target is a page to poll.
type Target struct {
	ID  picker.EndpointID
	URL string
}

// Config is how to poll.
type Config struct {
	Interval  time.Duration // from the begin of one scrape to the next; 0: 50 ms
	Timeout   time.Duration // of one scrape; 0: 1 s
	BodyLimit int64         // bytes of a page; 0: 8 MiB
	Clock     clock.Clock   // the clock of Load.At
	Client    *http.Client  // nil: one of its own
	Logger    *slog.Logger  // nil: slog.Default
	// OnPoll, if set, hears of each scrape: how long it took and why it gave no load, ErrPage for a page that cannot be read.
	OnPoll func(took time.Duration, err error)
}

// ErrPage is a page that came and cannot be read; other errors are those of the way to it.
var ErrPage = errors.New("metrics page")

// Scraper polls a changing set of targets.
type Scraper struct {
	cfg  Config
	own  *http.Transport // nil if the client is the caller's
	sink func(picker.EndpointID, picker.Load)

	mu     sync.Mutex
	polled map[Target]context.CancelFunc
	tasks  sync.WaitGroup
}

// New makes a scraper without targets. sink is called from several goroutines.
func New(cfg Config, sink func(picker.EndpointID, picker.Load)) *Scraper {
	if cfg.Interval <= 0 {
		cfg.Interval = 50 * time.Millisecond
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = time.Second
	}
	if cfg.BodyLimit <= 0 {
		cfg.BodyLimit = 8 << 20
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.NewReal()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	s := &Scraper{cfg: cfg, sink: sink, polled: map[Target]context.CancelFunc{}}
	if cfg.Client == nil {
		s.own = &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second}
		s.cfg.Client = &http.Client{Transport: s.own}
	}
	return s
}

// Set makes the targets exactly these: polling of new ones starts, of missing ones ends.
func (s *Scraper) Set(targets []Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := map[Target]bool{}
	for _, t := range targets {
		want[t] = true
		if s.polled[t] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		s.polled[t] = cancel
		s.tasks.Go(func() { s.poll(ctx, t) })
	}
	for t, cancel := range s.polled {
		if !want[t] {
			cancel()
			delete(s.polled, t)
		}
	}
}

// Close ends all polling and returns when it has ended.
func (s *Scraper) Close() {
	s.Set(nil)
	s.tasks.Wait()
	if s.own != nil {
		s.own.CloseIdleConnections()
	}
}

func (s *Scraper) poll(ctx context.Context, t Target) {
	warned := map[string]bool{}
	failing := false
	var page bytes.Buffer // kept from scrape to scrape: a page has tens of kilobytes
	for {
		at := s.cfg.Clock.Now()
		load, warnings, err := s.scrape(ctx, t.URL, &page)
		if ctx.Err() != nil {
			return
		}
		for _, w := range warnings {
			if !warned[w] {
				warned[w] = true
				s.cfg.Logger.Warn("metric is not used", "endpoint", t.URL, "reason", w)
			}
		}
		if (err != nil) != failing {
			failing = err != nil
			s.cfg.Logger.Info("scrape changed", "endpoint", t.URL, "failing", failing, "error", err)
		}
		if s.cfg.OnPoll != nil {
			s.cfg.OnPoll(s.cfg.Clock.Now()-at, err)
		}
		load.At = at
		s.sink(t.ID, load)
		// The next scrape is due from the begin of this one; after a slow one the missed instants are skipped.
		if next := at + s.cfg.Interval; !clock.Sleep(ctx, max(next-s.cfg.Clock.Now(), time.Millisecond)) {
			return
		}
	}
}

// scrape reads one page; the Load of an error is not OK.
func (s *Scraper) scrape(ctx context.Context, url string, page *bytes.Buffer) (picker.Load, []string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return picker.Load{}, nil, err
	}
	resp, err := s.cfg.Client.Do(req)
	if err != nil {
		return picker.Load{}, nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return picker.Load{}, nil, fmt.Errorf("status %s", resp.Status)
	}
	page.Reset()
	n, err := page.ReadFrom(io.LimitReader(resp.Body, s.cfg.BodyLimit+1))
	if err != nil {
		return picker.Load{}, nil, err
	}
	if n > s.cfg.BodyLimit {
		return picker.Load{}, nil, fmt.Errorf("%w: larger than %d bytes", ErrPage, s.cfg.BodyLimit)
	}
	return Parse(page.Bytes())
}
