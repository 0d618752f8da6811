package processor

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env/binary"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
)

// bodyLimit is how much of a body is kept.
const bodyLimit = 64 << 10

// completion is what an upstream answers where nothing else is said.
const completion = `{"id":"cmpl","object":"text_completion","choices":[{"index":0,"text":"fine","finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":11,"total_tokens":18}}`

// upstreams are the HTTP servers in the place of the gateway. They answer as they are told and note every attempt.
type upstreams struct {
	clock clock.Clock
	alive func() // something has changed

	mu       sync.Mutex
	rules    []sut.AsyncReply
	attempts []*evidence.Observation
	nth      map[string]int
	held     []*heldRequest // the oldest first
	servers  map[string]*upstreamServer
	tasks    sync.WaitGroup
	ended    bool
	refused  atomic.Int64 // TLS handshakes that failed
}

type heldRequest struct {
	id, upstream string
	release      chan struct{}
}

type upstreamServer struct {
	name string
	addr string
	tls  *tls.Config
	srv  *http.Server // nil: it does not listen
}

func newUpstreams(c clock.Clock, alive func()) *upstreams {
	return &upstreams{clock: c, alive: alive, nth: map[string]int{}, servers: map[string]*upstreamServer{}}
}

// url gives the URL of an upstream, which listens from now on.
func (u *upstreams) url(name string, t *tls.Config) (string, error) {
	u.mu.Lock()
	s := u.servers[name]
	if s == nil {
		s = &upstreamServer{name: name, tls: t}
		u.servers[name] = s
		u.mu.Unlock()
		if err := settle(binary.FreePort, func(addr string) error { s.addr = addr; return u.listen(s) }); err != nil {
			return "", err
		}
	} else {
		u.mu.Unlock()
	}
	scheme := "http"
	if t != nil {
		scheme = "https"
	}
	return scheme + "://" + s.addr, nil
}

// settle finds a port to listen on, of those that nobody is given by chance: it is kept while nothing listens there. Another program may
// take one between the choice and the use of it.
func settle(port func() (int, error), listen func(addr string) error) error {
	var errs []error
	for range 10 {
		n, err := port()
		if err == nil {
			err = listen(fmt.Sprintf("127.0.0.1:%d", n))
		}
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (u *upstreams) listen(s *upstreamServer) error {
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", s.addr)
	if err != nil {
		return fmt.Errorf("upstream %s: %w", s.name, err)
	}
	s.addr = ln.Addr().String()
	if s.tls != nil {
		ln = tls.NewListener(ln, s.tls)
	}
	s.srv = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { u.serve(s.name, w, r) }), ReadHeaderTimeout: time.Minute,
		ErrorLog: log.New(u, "", 0)}
	srv := s.srv
	u.tasks.Go(func() { _ = srv.Serve(ln) })
	return nil
}

// Write takes what the servers log, and counts the handshakes that failed: who does not trust an upstream is never seen as an attempt.
func (u *upstreams) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("TLS handshake error")) {
		u.refused.Add(1)
		u.alive()
	}
	return len(line), nil
}

// toggle lets an upstream listen, or not.
func (u *upstreams) toggle(name string, up bool) error {
	u.mu.Lock()
	s := u.servers[name]
	u.mu.Unlock()
	switch {
	case s == nil:
		return fmt.Errorf("upstream %s: the script does not use it", name)
	case up && s.srv == nil:
		return u.listen(s)
	case !up && s.srv != nil:
		err := s.srv.Close()
		s.srv = nil
		return err
	}
	return nil
}

func (u *upstreams) answer(rules []sut.AsyncReply) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.rules = rules
}

func (u *upstreams) rule(id, upstream string) sut.AsyncReply {
	for _, r := range u.rules {
		if (r.Upstream == "" || r.Upstream == upstream) && evidence.Among(r.IDs, id) {
			return r
		}
	}
	return sut.AsyncReply{}
}

func (u *upstreams) serve(name string, w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, bodyLimit)) // an attempt whose body breaks off is an attempt
	id := messageID(r, body)
	a := &evidence.Attempt{ID: id, Upstream: name, End: evidence.Never, Ending: evidence.Inside, Method: r.Method, URI: r.RequestURI, Host: r.Host, Headers: map[string][]string{},
		Body: strings.ToValidUTF8(string(body), "\ufffd")}
	for k, v := range r.Header {
		a.Headers[strings.ToLower(k)] = v
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		a.PeerCert = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	u.mu.Lock()
	u.nth[id]++
	a.Nth = u.nth[id]
	rule := u.rule(id, name)
	status := http.StatusOK
	if n := len(rule.Statuses); n > 0 {
		status = rule.Statuses[min(a.Nth, n)-1]
	}
	u.attempts = append(u.attempts, &evidence.Observation{At: int64(u.clock.Now()), Attempt: a})
	var h *heldRequest
	if rule.Hold && !u.ended {
		h = &heldRequest{id: id, upstream: name, release: make(chan struct{})}
		u.held = append(u.held, h)
	}
	u.mu.Unlock()
	u.alive()
	ending := evidence.Answered
	if !u.wait(r.Context(), h, rule.Delay) {
		ending, status = evidence.Dropped, 0
	} else {
		switch rule.Mode {
		case "reset", "cut":
			ending = evidence.BrokenOff
			u.end(a, ending, status)
			breakOff(w, rule, status)
			return
		default:
			reply(w, rule, status)
		}
	}
	u.end(a, ending, status)
}

// wait waits for the release and the delay; false: the processor has gone.
func (u *upstreams) wait(ctx context.Context, h *heldRequest, delay time.Duration) bool {
	if h != nil {
		select {
		case <-h.release:
		case <-ctx.Done():
			u.mu.Lock()
			u.held = slices.DeleteFunc(u.held, func(o *heldRequest) bool { return o == h })
			u.mu.Unlock()
			return false
		}
	}
	if delay > 0 {
		clock.Sleep(ctx, delay)
	}
	return ctx.Err() == nil
}

func (u *upstreams) end(a *evidence.Attempt, ending string, status int) {
	u.mu.Lock()
	a.End, a.Ending, a.Status = int64(u.clock.Now()), ending, status
	u.mu.Unlock()
	u.alive()
}

func reply(w http.ResponseWriter, rule sut.AsyncReply, status int) {
	w.Header().Set("Content-Type", "application/json")
	for k, v := range rule.Headers {
		w.Header().Set(k, v)
	}
	body := rule.Body
	if body == "" {
		body = completion
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // the attempt has ended either way
}

// breakOff ends the connection before an answer, or in the middle of one.
func breakOff(w http.ResponseWriter, rule sut.AsyncReply, status int) {
	c, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	if rule.Mode == "cut" {
		_, _ = fmt.Fprintf(c, "HTTP/1.1 %d OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(completion), completion[:len(completion)/2])
	}
}

// messageID finds which message an attempt belongs to: the field weir_id of its body, JSON or form, else the header x-weir-id.
func messageID(r *http.Request, body []byte) string {
	var doc struct {
		ID string `json:"weir_id"`
	}
	if json.Unmarshal(body, &doc) == nil && doc.ID != "" {
		return doc.ID
	}
	if kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && kind == "multipart/form-data" {
		form, err := multipart.NewReader(strings.NewReader(string(body)), params["boundary"]).ReadForm(bodyLimit)
		if err == nil && len(form.Value["weir_id"]) == 1 {
			return form.Value["weir_id"][0]
		}
	}
	if id := r.Header.Get("X-Weir-Id"); id != "" {
		return id
	}
	return "?"
}

// heldNow counts the requests that are held.
func (u *upstreams) heldNow(ids []string, upstream string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for _, h := range u.held {
		if (upstream == "" || h.upstream == upstream) && evidence.Among(ids, h.id) {
			n++
		}
	}
	return n
}

// release lets up to n held requests go, the oldest first; 0: all of them.
func (u *upstreams) release(ids []string, upstream string, n int) []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	var out []string
	var rest []*heldRequest
	for _, h := range u.held {
		if (n == 0 || len(out) < n) && (upstream == "" || h.upstream == upstream) && evidence.Among(ids, h.id) {
			close(h.release)
			out = append(out, h.id)
			continue
		}
		rest = append(rest, h)
	}
	u.held = rest
	return out
}

// arrived counts attempts.
func (u *upstreams) arrived(ids []string, upstream string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for _, o := range u.attempts {
		if (upstream == "" || o.Attempt.Upstream == upstream) && evidence.Among(ids, o.Attempt.ID) {
			n++
		}
	}
	return n
}

// close lets everything go, stops listening and gives what was seen.
func (u *upstreams) close() []evidence.Observation {
	u.mu.Lock()
	u.ended = true
	servers := u.servers
	var out []evidence.Observation
	for _, o := range u.attempts { // before anything is let go: what is inside now was inside when the scenario was over
		c, a := *o, *o.Attempt
		c.Attempt = &a
		out = append(out, c)
	}
	u.mu.Unlock()
	u.release(nil, "", 0)
	for _, s := range servers {
		if s.srv != nil {
			_ = s.srv.Close()
		}
	}
	u.tasks.Wait()
	return out
}
