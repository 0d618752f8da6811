package prom

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"

	"github.com/llm-weir/weir/harness/clock"
)

// Limits of one scrape.
const (
	scrapeTimeout = 10 * time.Second
	pageBytes     = 64 << 20
	pageType      = "text/plain; version=0.0.4"
)

// Target is a metrics page.
type Target struct {
	Job string // label job of its series
	URL string // http://host:port/path; without a path, /metrics
	// Labels are added to its series; a label of the page with such a name becomes exported_NAME.
	Labels map[string]string
}

// ParseTarget reads [JOB=]URL[,LABEL=VALUE...]; without a scheme the URL is HTTP, without a job it is "weir".
func ParseTarget(text string) (Target, error) {
	parts := strings.Split(text, ",")
	t := Target{Job: "weir", URL: parts[0], Labels: map[string]string{}}
	if job, rest, ok := strings.Cut(parts[0], "="); ok && !strings.Contains(job, "/") {
		t.Job, t.URL = job, rest
	}
	for _, p := range parts[1:] {
		name, v, ok := strings.Cut(p, "=")
		if !ok {
			return t, fmt.Errorf("target %q: %q is not LABEL=VALUE", text, p)
		}
		t.Labels[name] = v
	}
	_, err := t.address()
	return t, err
}

// String is the form that ParseTarget reads.
func (t Target) String() string {
	s := t.Job + "=" + t.URL
	for _, name := range slices.Sorted(maps.Keys(t.Labels)) {
		s += "," + name + "=" + t.Labels[name]
	}
	return s
}

// address is the page's URL in full.
func (t Target) address() (*url.URL, error) {
	text := t.URL
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("target %s: %w", t, err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("target %s: an HTTP address such as 127.0.0.1:9090 or http://host:port/metrics is needed", t)
	case t.Job == "":
		return nil, fmt.Errorf("target %s: the job is empty", t)
	}
	for name := range t.Labels {
		if !model.LegacyValidation.IsValidLabelName(name) || name == model.MetricNameLabel {
			return nil, fmt.Errorf("target %s: %q cannot be a label", t, name)
		}
	}
	if u.Path == "" {
		u.Path = "/metrics"
	}
	return u, nil
}

// scraper reads one target. Its lock is held during a scrape, so that the instants of its samples rise.
type scraper struct {
	s        *Server
	target   Target
	url      string
	instance string
	own      []labels.Label // what the target adds, job and instance first
	ctx      context.Context
	end      context.CancelFunc // of the scrapes

	mu     sync.Mutex
	gone   bool               // nothing is stored any more
	last   int64              // instant of the last scrape, Unix milliseconds
	series map[string]*series // of the last scrape, by their text
}

// series is a line of a page without its value.
type series struct {
	labels labels.Labels
	ref    storage.SeriesRef
}

func (s *Server) newScraper(t Target) (*scraper, error) {
	u, err := t.address()
	if err != nil {
		return nil, fmt.Errorf("prometheus: %w", err)
	}
	sc := &scraper{s: s, target: t, url: u.String(), instance: u.Host, series: map[string]*series{}}
	sc.ctx, sc.end = context.WithCancel(s.ctx)
	sc.own = []labels.Label{{Name: model.JobLabel, Value: t.Job}, {Name: model.InstanceLabel, Value: u.Host}}
	for _, name := range slices.Sorted(maps.Keys(t.Labels)) {
		sc.own = append(sc.own, labels.Label{Name: name, Value: t.Labels[name]})
	}
	return sc, nil
}

// scrapeOften scrapes at fixed instants until the server or the target ends; a scrape that takes too long costs those it covers.
func (s *Server) scrapeOften(sc *scraper) {
	next := s.o.Clock.Now()
	down := false
	for clock.SleepUntil(sc.ctx, s.o.Clock, next) {
		ctx, cancel := context.WithTimeout(sc.ctx, min(s.o.Interval, scrapeTimeout))
		err := sc.scrape(ctx)
		cancel()
		if (err != nil) != down && sc.ctx.Err() == nil {
			if down = err != nil; down {
				s.o.Logger.Warn("target is down", "error", err)
			} else {
				s.o.Logger.Info("target is up", "target", sc.target.String())
			}
		}
		for next += s.o.Interval; next <= s.o.Clock.Now(); {
			next += s.o.Interval
		}
	}
}

// scrape reads the page once. Whether it answers or not, its instant gets a sample of up, and what it no longer shows goes stale.
func (sc *scraper) scrape(ctx context.Context) error {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.gone {
		return nil
	}
	for sc.s.now().UnixMilli() <= sc.last { // one instant holds one sample
		if !clock.Sleep(ctx, time.Millisecond) {
			return ctx.Err()
		}
	}
	begin := sc.s.now()
	sc.last = begin.UnixMilli()
	body, contentType, err := sc.get(ctx)
	n := 0
	if err == nil {
		n, err = sc.store(body, contentType, begin)
	}
	if err != nil {
		err = fmt.Errorf("target %s: %w", sc.target, err)
		if _, serr := sc.store(nil, pageType, begin); serr != nil {
			err = errors.Join(err, serr)
		}
	}
	up := 1.0
	if err != nil {
		up = 0
	}
	return errors.Join(err, sc.report(map[string]float64{"up": up, "scrape_duration_seconds": sc.s.now().Sub(begin).Seconds(), "scrape_samples_scraped": float64(n)}))
}

func (sc *scraper) get(ctx context.Context) ([]byte, string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, sc.url, nil)
	if err != nil {
		return nil, "", err
	}
	req.Header.Set("Accept", pageType)
	req.Header.Set("User-Agent", "weir-prometheus")
	res, err := sc.s.fetch.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, pageBytes+1))
	switch {
	case err != nil:
		return nil, "", err
	case res.StatusCode != http.StatusOK:
		return nil, "", fmt.Errorf("status %s", res.Status)
	case len(body) > pageBytes:
		return nil, "", fmt.Errorf("the page is longer than %d bytes", pageBytes)
	}
	return body, res.Header.Get("Content-Type"), nil
}

// store keeps the samples of a page, all or, where it cannot be read to its end, none, and gives their number.
func (sc *scraper) store(page []byte, contentType string, at time.Time) (int, error) {
	p, err := textparse.New(page, contentType, nil, textparse.ParserOptions{FallbackContentType: "text/plain"})
	if p == nil {
		return 0, fmt.Errorf("content type %q: %w", contentType, err)
	}
	app := sc.s.db.Appender(sc.s.ctx)
	n, found, err := sc.appendPage(app, p, at.UnixMilli())
	for text, se := range sc.series {
		if found[text] == nil && err == nil {
			if _, err = app.Append(se.ref, se.labels, at.UnixMilli(), math.Float64frombits(value.StaleNaN)); tolerable(err) {
				err = nil
			}
		}
	}
	if err != nil {
		return 0, errors.Join(err, app.Rollback())
	}
	sc.series = found
	return n, app.Commit()
}

// appendPage gives the number of samples, and the series that go stale when they are no longer there: those without instants of their own.
func (sc *scraper) appendPage(app storage.Appender, p textparse.Parser, at int64) (int, map[string]*series, error) {
	n, found := 0, make(map[string]*series, len(sc.series))
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return n, found, nil
		}
		if err != nil {
			return 0, nil, err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		text, when, v := p.Series()
		se := sc.series[string(text)]
		if se == nil {
			var l labels.Labels
			p.Labels(&l)
			se = &series{labels: sc.label(l)}
		}
		t := at
		if when != nil {
			t = *when
		} else {
			found[string(text)] = se
		}
		ref, err := app.Append(se.ref, se.labels, t, v)
		if err != nil && !tolerable(err) {
			return 0, nil, fmt.Errorf("%s: %w", text, err)
		}
		if err == nil {
			se.ref = ref
		}
		n++
	}
}

// tolerable errors concern one sample, which came twice or late, and not the page.
func tolerable(err error) bool {
	return errors.Is(err, storage.ErrOutOfOrderSample) || errors.Is(err, storage.ErrDuplicateSampleForTimestamp) || errors.Is(err, storage.ErrOutOfBounds) ||
		errors.Is(err, storage.ErrTooOldSample)
}

// label adds the target's labels to those of the page.
func (sc *scraper) label(l labels.Labels) labels.Labels {
	b := labels.NewBuilder(l)
	for _, own := range sc.own {
		if v := l.Get(own.Name); v != "" {
			b.Set(model.ExportedLabelPrefix+own.Name, v)
		}
		b.Set(own.Name, own.Value)
	}
	return b.Labels()
}

// report keeps the figures of the scrape itself.
func (sc *scraper) report(figures map[string]float64) error {
	app := sc.s.db.Appender(sc.s.ctx)
	for name, v := range figures {
		if _, err := app.Append(0, sc.label(labels.FromStrings(model.MetricNameLabel, name)), sc.last, v); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", name, err), app.Rollback())
		}
	}
	return app.Commit()
}
