package asyncproc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
	"github.com/llm-weir/weir/reference/redisq"
)

// rig is a processor between an embedded broker and a gateway in the same process, all on the fake time of a synctest bubble.
type rig struct {
	t      *testing.T
	broker *miniredis.Miniredis
	client *redis.Client
	start  time.Time
	flags  asyncconfig.Flags
	files  map[string]string
	spans  trace.TracerProvider

	mu       sync.Mutex
	arrivals []arrival
	// reply answers an attempt; it may wait for ctx. nil: 200.
	reply func(ctx context.Context, a arrival) (int, http.Header, string, error)
}

// arrival is an attempt as the gateway saw it.
type arrival struct {
	at     time.Duration
	id     string // of the payload
	body   string
	header http.Header
	path   string
	n      int // how often this id has arrived, from 1
}

const base = `{"url":"redis://broker:6379","poll_interval_ms":100,"queues":[%s]}`

func queueEntry(more string) string {
	return `{"queue_name":"q","igw_base_url":"http://gw"` + more + `}`
}

// bubble runs a test on fake time with a processor configured by a sorted-set document.
func bubble(t *testing.T, f func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		defer m.Close()
		r := &rig{t: t, broker: m, start: time.Now(), files: map[string]string{}}
		r.flags = asyncconfig.Flags{Concurrency: 64, Transport: "redis-sortedset", RequestTimeout: 5 * time.Minute, DrainTimeout: 2 * time.Minute,
			GateWaitTimeout: 5 * time.Minute, BacklogInterval: 15 * time.Second, V: 2, Durability: "at-least-once", RetryTransportErrors: true,
			TransportConfigFile: "t.json", PrometheusCacheTTL: 5 * time.Second}
		r.client = r.dial("")
		defer r.client.Close()
		f(t, r)
	})
}

func (r *rig) dial(string) *redis.Client {
	o := redisq.Limit(&redis.Options{})
	o.Dialer = func(context.Context, string, string) (net.Conn, error) {
		c, err := r.broker.Dial()
		if err != nil {
			return nil, err
		}
		return pump(c), nil
	}
	return redis.NewClient(o)
}

// pumped is a pipe that takes writes at once, as a socket does; the bare pipe makes a client that sends a long pipeline and a server that
// answers meanwhile wait for each other.
type pumped struct {
	net.Conn
	out    chan []byte
	closed chan struct{}
	once   sync.Once
}

func pump(c net.Conn) net.Conn {
	p := &pumped{Conn: c, out: make(chan []byte, 4096), closed: make(chan struct{})}
	go func() {
		for {
			select {
			case b := <-p.out:
				if _, err := c.Write(b); err != nil {
					return
				}
			case <-p.closed:
				return
			}
		}
	}()
	return p
}

func (p *pumped) Write(b []byte) (int, error) {
	select {
	case p.out <- slices.Clone(b):
		return len(b), nil
	case <-p.closed:
		return 0, net.ErrClosed
	}
}

func (p *pumped) SetWriteDeadline(time.Time) error { return nil }

func (p *pumped) SetDeadline(t time.Time) error { return p.SetReadDeadline(t) }

func (p *pumped) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.Conn.Close()
}

// write puts a file there.
func (r *rig) write(name, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files[name] = text
}

// serve starts a processor on the document.
func (r *rig) serve(doc string) *Server {
	r.t.Helper()
	r.write("t.json", doc)
	l := asyncconfig.NewLoader(r.flags, func(string) string { return "" }, func(name string) ([]byte, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if text, ok := r.files[name]; ok {
			return []byte(text), nil
		}
		return nil, errors.New("no such file")
	})
	c, err := l.Load()
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := Serve(Options{Config: c, Loader: l, Seed: 1, Tracing: r.spans, Logger: slog.New(slog.NewTextHandler(logs(r.t), nil)), Redis: func() *redis.Client { return r.dial("") },
		Dial: r.dial, HTTP: &http.Client{Transport: r, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		Listen: func(int) (net.Listener, error) { return newDeaf(), nil }})
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// deaf is a listener to whom nobody speaks.
type deaf struct {
	closed chan struct{}
	once   sync.Once
}

func newDeaf() *deaf { return &deaf{closed: make(chan struct{})} }

func (d *deaf) Accept() (net.Conn, error) { <-d.closed; return nil, net.ErrClosed }
func (d *deaf) Close() error              { d.once.Do(func() { close(d.closed) }); return nil }
func (d *deaf) Addr() net.Addr            { return &net.TCPAddr{} }

// RoundTrip is the gateway.
func (r *rig) RoundTrip(req *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(req.Body)
	var payload struct{ N string }
	_ = json.Unmarshal(body, &payload)
	a := arrival{at: time.Since(r.start), id: payload.N, body: string(body), header: req.Header, path: req.URL.RequestURI(), n: 1}
	r.mu.Lock()
	for _, b := range r.arrivals {
		if b.id == a.id {
			a.n++
		}
	}
	r.arrivals = append(r.arrivals, a)
	reply := r.reply
	r.mu.Unlock()
	status, header, text := 200, http.Header{}, "ok "+a.id
	if reply != nil {
		s, h, b, err := reply(req.Context(), a)
		if err != nil {
			return nil, err
		}
		if status, text = s, b; h != nil {
			header = h
		}
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(text)), Request: req}, nil
}

// submit puts a request into a queue, by hand and without a token unless producer.
func (r *rig) submit(queue, id string, left time.Duration, more ...func(*async.Request)) string {
	r.t.Helper()
	req := async.Request{ID: id, Deadline: time.Now().Add(left).Unix(), Payload: []byte(fmt.Sprintf(`{"N":%q}`, id))}
	for _, m := range more {
		m(&req)
	}
	token, err := redisq.Submit(context.Background(), r.client, queue, "", req, time.Now())
	if err != nil {
		r.t.Fatal(err)
	}
	return token
}

func (r *rig) raw(queue, member string) {
	r.t.Helper()
	if err := r.client.ZAdd(context.Background(), queue, redis.Z{Score: float64(time.Now().Unix() + 60), Member: member}).Err(); err != nil {
		r.t.Fatal(err)
	}
}

// pass lets fake time go on.
func (r *rig) pass(d time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	<-ctx.Done()
	synctest.Wait()
}

// results are those in a list, oldest first.
func (r *rig) results(list string) []async.Result {
	r.t.Helper()
	all, err := r.client.LRange(context.Background(), list, 0, -1).Result()
	if err != nil {
		r.t.Fatal(err)
	}
	slices.Reverse(all)
	out := make([]async.Result, len(all))
	for i, text := range all {
		if err := json.Unmarshal([]byte(text), &out[i]); err != nil {
			r.t.Fatal(err)
		}
	}
	return out
}

// inBroker is the number of messages in the request set, the retry set and the claims of a queue.
func (r *rig) inBroker(queue string) int {
	ctx := context.Background()
	return int(r.client.ZCard(ctx, queue).Val() + r.client.ZCard(ctx, "retry-sortedset").Val() + r.client.HLen(ctx, queue+":claimed").Val())
}

func (r *rig) seen() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.arrivals)
}

func (r *rig) answer(f func(ctx context.Context, a arrival) (int, http.Header, string, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reply = f
}

// hold makes the gateway keep every request until it is released or given up.
func (r *rig) hold() (release func()) {
	gate := make(chan struct{})
	r.answer(func(ctx context.Context, a arrival) (int, http.Header, string, error) {
		select {
		case <-gate:
			return 200, nil, "ok " + a.id, nil
		case <-ctx.Done():
			return 0, nil, "", ctx.Err()
		}
	})
	return func() { close(gate) }
}

// series reads one sample of the metrics page; labels are pairs that must match. -1: there is none.
func (r *rig) series(s *Server, name string, match ...string) float64 {
	families, err := s.Metrics().Gatherer().Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != prefix+name {
			continue
		}
	metrics:
		for _, m := range f.GetMetric() {
			for i := 0; i+1 < len(match); i += 2 {
				found := false
				for _, l := range m.GetLabel() {
					found = found || l.GetName() == match[i] && l.GetValue() == match[i+1]
				}
				if !found {
					continue metrics
				}
			}
			if h := m.GetHistogram(); h != nil {
				return float64(h.GetSampleCount())
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return -1
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// logs are where a processor's log goes: to the test's output with -v.
func logs(t *testing.T) io.Writer {
	if testing.Verbose() {
		return t.Output()
	}
	return io.Discard
}
