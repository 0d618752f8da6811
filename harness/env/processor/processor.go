// Package processor is an Async Processor as a program, with everything it needs around it and under the harness's hand.
//
//	messages --> broker <--proxy--> processor (a process) --attempts--> upstreams in the place of the gateway
//	                |                   |      \--queries, scrapes--> Prometheus and page with scripted values
//	results <-------+                   \--spans--> collector     \--metrics, health--> samples
//
// Nothing of the processor is known but its flags, its ports, its exit and what it prints. The broker is an embedded Redis, or a real
// redis-server, behind a proxy that can hold, cut and refuse connections while the broker keeps what it has.
package processor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env/binary"
	"github.com/llm-weir/weir/harness/env/embedded"
	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/prom"
	"github.com/llm-weir/weir/harness/sut"
)

// Placeholders are what a processor's command may refer to, each as {{.Name}}.
var Placeholders = []string{"Config", "MetricsPort", "HealthPort", "Flags"}

// Parse reads a command, which must use the placeholders without which nobody could start, watch or ask a processor.
func Parse(text string) (binary.Command, error) {
	c, err := binary.ParseWith(text, Placeholders...)
	if err != nil {
		return c, err
	}
	for _, name := range []string{"Config", "MetricsPort", "HealthPort"} {
		if !c.Uses(name) {
			return c, fmt.Errorf("command %q: it must use {{.%s}}", text, name)
		}
	}
	values := map[string]string{}
	for _, name := range Placeholders {
		values[name] = name
	}
	values["Flags"] = here
	words, err := c.Fill(values)
	for _, w := range words {
		if strings.Contains(w, here) && w != here {
			err = errors.Join(err, fmt.Errorf("command %q: {{.Flags}} stands for several words and must be one of its own", text))
		}
	}
	return c, err
}

// Options say which processor is judged and what broker it gets.
type Options struct {
	// Command starts the processor. Flags that a scenario needs follow it, or stand where {{.Flags}} does; a flag with a placeholder that a scenario
	// leaves out is left out.
	Command binary.Command
	// RedisServer is the program of a real broker; "": the embedded one.
	RedisServer    string
	Implementation evidence.Implementation
}

// System is one processor under test.
type System struct {
	opts Options
}

// New makes a system; nothing runs before Play.
func New(o Options) *System {
	redis.SetLogger(silent{}) // connections to brokers that end are no news here
	return &System{opts: o}
}

type silent struct{}

// Printf implements the client library's logger.
func (silent) Printf(context.Context, string, ...any) {}

// Describe implements sut.System.
func (s *System) Describe() sut.Implementation { return s.opts.Implementation }

// Configure implements sut.System: scripts configure what they start.
func (s *System) Configure(context.Context, sut.Configuration) error { return nil }

// Close implements sut.System: Play leaves nothing behind.
func (s *System) Close(context.Context) error { return nil }

// Play implements sut.System.
func (s *System) Play(ctx context.Context, script sut.Script, out evidence.Sink) error {
	r, err := newRig(s.opts, out)
	if err != nil {
		return err
	}
	err = r.play(ctx, script.Async)
	return errors.Join(err, r.close())
}

// rig is what surrounds the processors of one scenario.
type rig struct {
	opts    Options
	out     evidence.Sink
	clock   clock.Real
	dir     string
	brokers [2]*broker // the second one is made when it is named
	up      *upstreams
	prom    *source
	page    *source
	watcher *prom.Server // of the processor's own metrics
	otlp    *sink
	otlp0   *sink // where exporters go that nobody told where
	topics  *topics
	certs   *certificates

	mu       sync.Mutex
	changed  chan struct{} // closed and made anew at every change that a barrier may wait for
	programs map[string]*program
	results  map[string]int // taken so far, by id
	tokens   map[string]string
	sent     int
	trials   int
	stop     context.CancelFunc // of what takes results
	tasks    sync.WaitGroup
}

func newRig(o Options, out evidence.Sink) (*rig, error) {
	dir, err := os.MkdirTemp("", "weir-processor-")
	if err != nil {
		return nil, err
	}
	r := &rig{opts: o, out: out, clock: clock.NewReal(), dir: dir, changed: make(chan struct{}), programs: map[string]*program{}, results: map[string]int{}, tokens: map[string]string{},
		stop: func() {}}
	r.up = newUpstreams(r.clock, r.alive)
	r.brokers[0], err = newBroker(o.RedisServer, filepath.Join(dir, "broker"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return r, nil
}

// alive wakes whoever waits at a barrier.
func (r *rig) alive() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
}

// look is how often a barrier is looked at whose change nobody announces.
const look = 10 * time.Millisecond

// await waits until cond says yes, at most for limit.
func (r *rig) await(ctx context.Context, limit time.Duration, cond func() bool) bool {
	end := r.clock.Now() + limit
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		if cond() {
			return true
		}
		left := end - r.clock.Now()
		if left <= 0 || ctx.Err() != nil {
			return false
		}
		t := r.clock.Timer(min(look, left))
		select {
		case <-changed:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// close ends everything and hands the upstreams' records over.
func (r *rig) close() error {
	var errs []error
	for _, p := range r.programs {
		p.end()
		r.out.File(p.name+".log", []byte(p.output()))
	}
	r.stop()
	for _, o := range r.up.close() {
		r.out.Observe(o)
	}
	for _, s := range []*source{r.prom, r.page} {
		if s != nil {
			errs = append(errs, s.close())
		}
	}
	if r.watcher != nil {
		errs = append(errs, r.watcher.Close())
	}
	for _, s := range []*sink{r.otlp, r.otlp0} {
		if s != nil {
			s.close()
		}
	}
	if r.topics != nil {
		r.topics.close()
	}
	for _, b := range r.brokers {
		if b != nil {
			b.close()
		}
	}
	r.tasks.Wait()
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

// broker is a Redis behind a proxy.
type broker struct {
	embedded *embedded.Broker
	server   *binary.Started
	proxy    *proxy
	secure   *proxy // the same under TLS; nil before it is named
	direct   *redis.Client
}

func newBroker(program, dir string) (*broker, error) {
	b := &broker{}
	var addr string
	if program == "" {
		var err error
		if b.embedded, err = embedded.Start("127.0.0.1:0"); err != nil {
			return nil, fmt.Errorf("broker: %w", err)
		}
		addr = b.embedded.Addr()
	} else {
		port, err := binary.FreePort()
		if err != nil {
			return nil, err
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		addr = fmt.Sprintf("127.0.0.1:%d", port)
		b.server, err = binary.Spawn([]string{program, "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir})
		if err != nil {
			return nil, fmt.Errorf("broker: %w", err)
		}
	}
	var err error
	if b.proxy, err = newProxy(addr, nil); err != nil {
		b.close()
		return nil, err
	}
	b.direct = redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	c := clock.NewReal()
	for b.direct.Ping(context.Background()).Err() != nil {
		if why := b.silent(c.Now()); why != "" {
			b.close()
			return nil, fmt.Errorf("broker %s at %s: %s", program, addr, why)
		}
		clock.Sleep(context.Background(), look)
	}
	return b, nil
}

// silent says why a broker that has not answered for so long will not; "": it may yet.
func (b *broker) silent(waited time.Duration) string {
	if b.server != nil {
		select {
		case <-b.server.Ended():
			_, how := b.server.Exit()
			return how + ": " + b.server.Output()
		default:
		}
	}
	if waited > 5*time.Second {
		return "it does not answer"
	}
	return ""
}

func (b *broker) close() {
	for _, p := range []*proxy{b.proxy, b.secure} {
		if p != nil {
			p.close()
		}
	}
	if b.direct != nil {
		_ = b.direct.Close()
	}
	if b.embedded != nil {
		b.embedded.Close()
	}
	if b.server != nil {
		b.server.Stop(time.Second)
	}
}

// expand fills the tokens of a text in. What a token names exists from then on.
func (r *rig) expand(ctx context.Context, p *program, text string) (string, error) {
	var errs []error
	out := tokenPattern.ReplaceAllStringFunc(text, func(token string) string {
		v, err := r.token(ctx, p, strings.TrimPrefix(token, "$"))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", token, err))
		}
		return v
	})
	return out, errors.Join(errs...)
}

// expandAll does so for some texts.
func (r *rig) expandAll(ctx context.Context, p *program, texts []string) ([]string, error) {
	out := slices.Clone(texts)
	var errs []error
	for i := range out {
		var err error
		out[i], err = r.expand(ctx, p, out[i])
		errs = append(errs, err)
	}
	return out, errors.Join(errs...)
}
