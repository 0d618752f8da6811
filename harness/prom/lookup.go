package prom

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/value"

	"github.com/llm-weir/weir/harness/clock"
)

// lookupInterval is the time between two looks at the addresses of a name; those of a headless Service change with its pods.
const lookupInterval = 5 * time.Second

// follow scrapes every address of each name, those that it has now and those that it gets.
func (s *Server) follow(names []Target) error {
	if s.o.Lookup == nil {
		s.o.Lookup = net.DefaultResolver.LookupHost
	}
	for _, t := range names {
		u, err := t.address()
		if err != nil {
			return fmt.Errorf("prometheus: %w", err)
		}
		if s.o.Interval > 0 {
			s.tasks.Go(func() { s.lookUpOften(t, u) })
		}
	}
	return nil
}

func (s *Server) lookUpOften(t Target, u *url.URL) {
	at := map[string]*scraper{}
	for next := s.o.Clock.Now(); clock.SleepUntil(s.ctx, s.o.Clock, next); next = s.o.Clock.Now() + lookupInterval {
		s.lookUp(t, u, at)
	}
}

// lookUp makes at the scrapers of the addresses that the name has now.
func (s *Server) lookUp(t Target, u *url.URL, at map[string]*scraper) {
	ctx, cancel := context.WithTimeout(s.ctx, lookupInterval)
	defer cancel()
	addresses, err := s.o.Lookup(ctx, u.Hostname())
	var unknown *net.DNSError
	switch {
	case s.ctx.Err() != nil:
	case err == nil, errors.As(err, &unknown) && unknown.IsNotFound: // a Service without pods has no addresses
		s.meet(t, u, addresses, at)
	default: // a resolver that does not answer says nothing about the pods
		s.o.Logger.Warn("name cannot be looked up", "target", t.String(), "error", err)
	}
}

// meet makes at the scrapers of exactly these addresses.
func (s *Server) meet(t Target, u *url.URL, addresses []string, at map[string]*scraper) {
	for _, a := range addresses {
		if at[a] != nil {
			continue
		}
		one, page := t, *u
		page.Host = net.JoinHostPort(a, port(u))
		one.URL = page.String()
		sc, err := s.newScraper(one)
		if err == nil {
			err = s.add(sc)
		}
		if err != nil {
			s.o.Logger.Warn("address is not scraped", "error", err)
			continue
		}
		at[a] = sc
	}
	for a, sc := range at {
		if slices.Contains(addresses, a) {
			continue
		}
		delete(at, a)
		if err := s.remove(sc); err != nil {
			s.o.Logger.Warn("series of an address that is gone", "target", sc.target.String(), "error", err)
		}
	}
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}

// remove ends a target: its series, those of the scrape itself too, go stale.
func (s *Server) remove(sc *scraper) error {
	sc.end()
	s.mu.Lock()
	s.scrapers = slices.DeleteFunc(slices.Clone(s.scrapers), func(other *scraper) bool { return other == sc })
	s.mu.Unlock()
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.gone = true
	if sc.last == 0 { // never scraped
		return nil
	}
	sc.last = max(s.now().UnixMilli(), sc.last+1)
	if _, err := sc.store(nil, pageType, time.UnixMilli(sc.last)); err != nil {
		return err
	}
	stale := math.Float64frombits(value.StaleNaN)
	return sc.report(map[string]float64{"up": stale, "scrape_duration_seconds": stale, "scrape_samples_scraped": stale})
}
