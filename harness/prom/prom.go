// Package prom is an embedded Prometheus: its time series database and its query engine as libraries, with a scraper and the query API
// around them, for the places that have none.
//
//	targets --GET /metrics--> scraper --samples, up, staleness--> TSDB (a folder that goes with the server)
//	                                                                |
//	gates, people --/api/v1/query, /api/v1/query_range--> engine ---'
//
// Of discovery there are names with several addresses. Relabelling, rules, alerts and remote storage stay with the real server.
package prom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/llm-weir/weir/harness/clock"
)

// Config says what is scraped and where questions are answered.
type Config struct {
	Targets []Target
	// Names are targets whose host is a name with an address for each of several pages. They are looked up again and again, unless
	// Interval is 0.
	Names []Target
	// Interval is the time between two scrapes of a target. 0: nothing is scraped but by ScrapeNow.
	Interval time.Duration
	// Addr is the HTTP listener; port 0 takes a free one.
	Addr string
	// Retention is how long samples are kept; 0: a day.
	Retention time.Duration
	Clock     Clock        // nil: the machine's
	Logger    *slog.Logger // nil: nobody hears of failed scrapes
	// Lookup gives the addresses of a name; nil: the machine's resolver.
	Lookup func(ctx context.Context, name string) ([]string, error)
}

// Clock tells the time of the run and the wall time at which it began; clock.Real is one.
type Clock interface {
	clock.Clock
	Epoch() time.Time
}

// Limits of a query, those of a Prometheus server but for the time, which is shorter because everything is near.
const (
	maxSamples   = 50_000_000
	maxPoints    = 11_000 // of a series in a range query
	queryTimeout = 30 * time.Second
	// subqueryStep is that of a subquery without one: the default evaluation interval of a server.
	subqueryStep = time.Minute
)

// defaultRetention is a day, minRetention what the database needs to keep its newest block.
const (
	defaultRetention = 24 * time.Hour
	minRetention     = 2 * time.Hour
)

// Server is a running Prometheus.
type Server struct {
	o      Config
	dir    string
	db     *tsdb.DB
	engine *promql.Engine
	web    *http.Server
	addr   string
	fetch  *http.Client

	ctx   context.Context // ends with the server
	end   context.CancelFunc
	tasks sync.WaitGroup
	once  sync.Once
	err   error // of Close

	mu       sync.Mutex // over scrapers
	scrapers []*scraper
}

// Serve starts a server and returns when its port is open.
func Serve(c Config) (*Server, error) {
	if c.Clock == nil {
		c.Clock = clock.NewReal()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.Retention == 0 {
		c.Retention = defaultRetention
	}
	if c.Interval < 0 || c.Retention < minRetention {
		return nil, fmt.Errorf("prometheus: interval %s, retention %s: the interval must not be negative, the retention at least %s", c.Interval, c.Retention, minRetention)
	}
	dir, err := os.MkdirTemp("", "weir-prometheus-")
	if err != nil {
		return nil, fmt.Errorf("prometheus: folder of the samples: %w", err)
	}
	s := &Server{o: c, dir: dir, fetch: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute}}}
	s.ctx, s.end = context.WithCancel(context.Background())
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) start() error {
	o := tsdb.DefaultOptions()
	o.RetentionDuration = s.o.Retention.Milliseconds()
	o.WALSegmentSize = -1 // a log to recover from is of no use in a folder that is removed
	o.NoLockfile = true
	var err error
	if s.db, err = tsdb.Open(s.dir, slog.New(slog.NewTextHandler(io.Discard, nil)), nil, o, nil); err != nil {
		return fmt.Errorf("prometheus: samples in %s: %w", s.dir, err)
	}
	s.engine = promql.NewEngine(promql.EngineOpts{MaxSamples: maxSamples, Timeout: queryTimeout, EnableAtModifier: true, EnableNegativeOffset: true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return subqueryStep.Milliseconds() }, Parser: parser.NewParser(parser.Options{})})
	var lc net.ListenConfig
	ln, err := lc.Listen(s.ctx, "tcp", s.o.Addr)
	if err != nil {
		return fmt.Errorf("prometheus: %w; choose another address (port 0 takes a free one)", err)
	}
	s.addr = ln.Addr().String()
	s.web = &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second}
	s.tasks.Go(func() { _ = s.web.Serve(ln) })
	for _, t := range s.o.Targets {
		if err := s.Add(t); err != nil {
			return err
		}
	}
	return s.follow(s.o.Names)
}

// Add scrapes one more target from now on.
func (s *Server) Add(t Target) error {
	sc, err := s.newScraper(t)
	if err != nil {
		return err
	}
	return s.add(sc)
}

func (s *Server) add(sc *scraper) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return errors.New("prometheus: it has ended")
	}
	for _, other := range s.scrapers {
		if other.target.Job == sc.target.Job && other.instance == sc.instance {
			return fmt.Errorf("prometheus: target %s: there is one with that job and instance", sc.target)
		}
	}
	s.scrapers = append(s.scrapers, sc)
	if s.o.Interval > 0 {
		s.tasks.Go(func() { s.scrapeOften(sc) })
	}
	return nil
}

// ScrapeNow scrapes every target once, and says which did not answer. Queries that begin later see what it read.
func (s *Server) ScrapeNow(ctx context.Context) error {
	s.mu.Lock()
	list := s.scrapers[:len(s.scrapers):len(s.scrapers)]
	s.mu.Unlock()
	var errs []error
	for _, sc := range list {
		errs = append(errs, sc.scrape(ctx))
	}
	return errors.Join(errs...)
}

// Addr is where it listens.
func (s *Server) Addr() string { return s.addr }

// URL is what a gate's --prometheus-url takes.
func (s *Server) URL() string { return "http://" + s.addr }

// now is the wall time of the run's clock.
func (s *Server) now() time.Time { return s.o.Clock.Epoch().Add(s.o.Clock.Now()) }

// Close ends scraping and serving, and removes the samples.
func (s *Server) Close() error {
	s.once.Do(func() {
		s.mu.Lock()
		s.end()
		s.mu.Unlock()
		if s.web != nil {
			s.web.Close()
		}
		s.tasks.Wait()
		s.fetch.CloseIdleConnections()
		if s.db != nil {
			if err := s.db.Close(); err != nil {
				s.err = fmt.Errorf("prometheus: samples: %w", err)
			}
		}
		if s.engine != nil {
			s.err = errors.Join(s.err, s.engine.Close())
		}
		s.err = errors.Join(s.err, os.RemoveAll(s.dir))
	})
	return s.err
}
