package processor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/prom"
)

// source is a Prometheus with a scripted page, in front of which every query is noted, or a bare page that gates scrape.
type source struct {
	clock clock.Clock
	note  func(evidence.Observation)
	addr  string
	srv   *http.Server
	prom  *prom.Server
	proxy *httputil.ReverseProxy
	tasks sync.WaitGroup

	mu    sync.Mutex
	text  string
	fails bool
	asked map[string]int // queries, or addresses of the bare page, since the page was set last
}

func newSource(c clock.Clock, note func(evidence.Observation)) (*source, error) {
	s := &source{clock: c, note: note, asked: map[string]int{}}
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("metrics stand-in: %w", err)
	}
	s.addr = ln.Addr().String()
	s.srv = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	s.tasks.Go(func() { _ = s.srv.Serve(ln) })
	return s, nil
}

// scriptedJob is the job of the page's series, that of the guide's example of a query of one's own.
const scriptedJob = "inference"

// queries puts a real query engine behind the page.
func (s *source) queries() error {
	p, err := prom.Serve(prom.Config{Targets: []prom.Target{{Job: scriptedJob, URL: "http://" + s.addr + "/metrics"}}, Addr: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	u, err := url.Parse(p.URL())
	if err != nil {
		return err
	}
	s.prom, s.proxy = p, httputil.NewSingleHostReverseProxy(u)
	s.proxy.ErrorLog = log.New(io.Discard, "", 0) // a processor that ends leaves its queries
	return nil
}

// set changes the page; whoever asks later sees it.
func (s *source) set(ctx context.Context, text string, fails bool) error {
	s.mu.Lock()
	s.text, s.fails = text, fails
	s.asked = map[string]int{}
	s.mu.Unlock()
	if s.prom == nil || fails {
		return nil
	}
	err := s.prom.ScrapeNow(ctx)
	s.mu.Lock()
	s.asked = map[string]int{} // who came before the scrape was over may have seen the former page
	s.mu.Unlock()
	return err
}

// count tells how often the page was asked since it was set last: by what contains a text.
func (s *source) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for asked, times := range s.asked {
		if strings.Contains(asked, text) {
			n += times
		}
	}
	return n
}

// ServeHTTP is the page, and the query API.
func (s *source) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asked := r.RequestURI
	if s.prom != nil {
		asked = r.FormValue("query") // "" of the engine's own scrapes
	}
	s.mu.Lock()
	text, fails := s.text, s.fails
	if asked != "" {
		s.asked[asked]++
	}
	s.mu.Unlock()
	if r.URL.Path == "/metrics" {
		if text == "" && s.prom == nil {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, text)
		return
	}
	if s.proxy == nil {
		http.NotFound(w, r)
		return
	}
	q := &evidence.Query{Text: asked, Status: http.StatusOK}
	if fails {
		q.Status = http.StatusInternalServerError
	}
	s.note(evidence.Observation{At: int64(s.clock.Now()), Query: q})
	if fails {
		http.Error(w, `{"status":"error","errorType":"internal","error":"told to fail"}`, http.StatusInternalServerError)
		return
	}
	if r.Method == http.MethodPost { // the form was read: it goes on as a query string
		r.Method, r.Body, r.ContentLength = http.MethodGet, http.NoBody, 0
		r.URL.RawQuery = r.Form.Encode()
		r.Header.Del("Content-Type")
		r.Header.Del("Content-Length")
	}
	s.proxy.ServeHTTP(w, r)
}

func (s *source) close() error {
	err := s.srv.Close()
	if s.prom != nil {
		err = errors.Join(err, s.prom.Close())
	}
	s.tasks.Wait()
	return err
}
