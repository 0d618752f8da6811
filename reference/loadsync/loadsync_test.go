package loadsync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/harness/clock"
)

// broker is a Redis in this process that can be lost and come back.
type broker struct {
	mini *miniredis.Miniredis

	mu    sync.Mutex
	down  bool
	hung  bool // commands are swallowed
	conns []net.Conn
}

func newBroker() *broker {
	b := &broker{mini: miniredis.NewMiniRedis()}
	b.mini.ClockTTL(true)
	return b
}

func (b *broker) options() *redis.Options {
	return &redis.Options{Addr: "broker", Dialer: func(context.Context, string, string) (net.Conn, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.down {
			return nil, errors.New("connection refused")
		}
		c, err := b.mini.Dial()
		b.conns = append(b.conns, c)
		return conn{c, b}, err
	}}
}

// conn is a connection to a broker that may hang.
type conn struct {
	net.Conn
	b *broker
}

func (c conn) Write(p []byte) (int, error) {
	c.b.mu.Lock()
	hung := c.b.hung
	c.b.mu.Unlock()
	if hung {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (b *broker) hang(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hung = on
}

// lose breaks every connection and refuses new ones, until restore; everything it held is lost, as of one without persistence.
func (b *broker) lose() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = true
	for _, c := range b.conns {
		c.Close()
	}
	b.conns = nil
	b.mini.FlushAll()
}

func (b *broker) restore() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = false
}

// replica is a picker as far as a syncer sees it.
type replica struct {
	*Syncer
	changed chan struct{}
	clock   clock.Clock

	mu       sync.Mutex
	loads    []Load
	reports  map[int]Report // by handle, the last one
	count    int
	errs     map[string]int
	replicas int
	log      strings.Builder
}

const limit = 2 * time.Second

func start(b *broker, name string, loads ...Load) *replica {
	r := &replica{changed: make(chan struct{}, 1), loads: loads, clock: clock.NewReal(), reports: map[int]Report{}, errs: map[string]int{}}
	r.Syncer = Start(Config{Redis: b.options(), Pool: "pool", Replica: name, Limit: limit, Clock: r.clock, Logger: slog.New(slog.NewTextHandler(r, nil)),
		Changed: r.changed,
		Loads: func() ([]Load, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return slices.Clone(r.loads), true
		},
		OnReport: func(p Report) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reports[p.Replica] = p
			r.count++
		},
		OnError: func(op string, _ error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.errs[op]++
		},
		OnReplicas: func(n int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.replicas = n
		}})
	return r
}

// Write is the log.
func (r *replica) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *replica) set(loads ...Load) {
	r.mu.Lock()
	r.loads = loads
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// elsewhere sums up what counts at an address, as a picker does.
func (r *replica) elsewhere(address string) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.reports {
		for _, l := range p.Loads {
			if l.Address == address && r.clock.Now()-p.At <= limit {
				n += l.Requests
			}
		}
	}
	return n
}

// heard counts the reports.
func (r *replica) heard() (n int) {
	r.look(func() { n = r.count })
	return n
}

// look reads what the callbacks have written.
func (r *replica) look(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *replica) expect(t *testing.T, when string, n int) {
	t.Helper()
	if got := r.elsewhere("a"); got != n {
		t.Errorf("%s: %d elsewhere, want %d", when, got, n)
	}
}

func load(n int) Load { return Load{"a", n, int64(10 * n)} }

// pass lets time go by in a bubble.
func pass(d time.Duration) {
	clock.Sleep(context.Background(), d)
	synctest.Wait()
}

func TestReplicasHearOfEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker()
		defer b.mini.Close()
		p := start(b, "p", load(1))
		q := start(b, "q")
		defer q.Close()
		pass(10 * time.Millisecond)
		p.expect(t, "an idle neighbour", 0)
		q.expect(t, "at the start", 1)
		p.set(load(3))
		pass(5 * time.Millisecond)
		q.expect(t, "after a change", 3)
		q.look(func() {
			if got := q.reports[1].Loads; !slices.Equal(got, []Load{{"a", 3, 30}}) {
				t.Errorf("reported %v", got)
			}
		})
		q.set(Load{"b", 9, 0}, load(2))
		pass(5 * time.Millisecond)
		p.expect(t, "the other way", 2)
		late := start(b, "late", load(5))
		pass(time.Millisecond)
		late.expect(t, "who joins later knows of both at once", 5)
		p.expect(t, "and is known", 7)
		if err := errors.Join(p.Close(), late.Close()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		q.expect(t, "both have left", 0)
		q.look(func() {
			if q.replicas != 0 || len(q.errs) != 0 || q.log.Len() > 0 {
				t.Errorf("%d replicas, errors %v, log %s", q.replicas, q.errs, q.log.String())
			}
		})
		if keys := b.mini.Keys(); len(keys) != 2 { // the index and one hash
			t.Errorf("left behind: %v", keys)
		}
	})
}

// TestPace: a change is published at once, a thousand of them every five milliseconds, none every heart-beat.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker()
		defer b.mini.Close()
		p, q := start(b, "p"), start(b, "q")
		defer p.Close()
		defer q.Close()
		pass(time.Second)
		quiet := q.heard()
		if quiet < 5 || quiet > 7 {
			t.Errorf("%d reports in a quiet second", quiet)
		}
		for i := range 1000 {
			p.set(load(i))
			pass(time.Millisecond)
		}
		pass(5 * time.Millisecond)
		q.expect(t, "the last one", 999)
		if n := q.heard() - quiet; n < 150 || n > 206 {
			t.Errorf("%d reports of a thousand changes in a second", n)
		}
		before := q.heard()
		for range 100 { // nothing new
			p.set(load(999))
			pass(time.Millisecond)
		}
		if n := q.heard() - before; n > 1 {
			t.Errorf("%d reports of no change", n)
		}
	})
}

func TestADeadReplicaIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker()
		defer b.mini.Close()
		p, q := start(b, "p", load(4)), start(b, "q")
		defer q.Close()
		pass(time.Second)
		if err := p.Abandon(); err != nil {
			t.Error(err)
		}
		pass(limit - 300*time.Millisecond)
		q.expect(t, "before the limit", 4)
		late := start(b, "late")
		pass(time.Millisecond)
		late.expect(t, "who joins now hears of it", 4)
		pass(310 * time.Millisecond)
		q.expect(t, "after it", 0)
		late.expect(t, "and forgets it in the same moment", 0)
		pass(time.Second)
		q.look(func() {
			if q.replicas != 1 {
				t.Errorf("%d replicas are heard", q.replicas)
			}
		})
		if names, _ := b.mini.SMembers("weir:inflight:{pool}"); len(names) != 3 {
			t.Errorf("index %v", names)
		}
		newer := start(b, "newer")
		pass(time.Millisecond)
		if names, _ := b.mini.SMembers("weir:inflight:{pool}"); !slices.Equal(names, []string{"late", "newer", "q"}) {
			t.Errorf("the next to join cleans the index: %v", names)
		}
		late.Close()
		newer.Close()
	})
}

// TestTheServerIsLost: each goes on alone after the limit, counts its errors, says so once, and is back as soon as the server is.
func TestTheServerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker()
		defer b.mini.Close()
		p, q := start(b, "p", load(4)), start(b, "q")
		pass(time.Second)
		b.lose()
		pass(limit / 2)
		q.expect(t, "what was known counts for a while", 4)
		pass(limit)
		q.expect(t, "and no longer than the limit", 0)
		q.look(func() {
			if q.errs[Publish] < 5 || q.errs[Receive] < 5 || q.errs[Decode] != 0 || q.replicas != 0 {
				t.Errorf("errors %v, %d replicas", q.errs, q.replicas)
			}
			if n := strings.Count(q.log.String(), "cannot be used"); n != 2 {
				t.Errorf("%d warnings:\n%s", n, q.log.String())
			}
		})
		p.set(load(2))
		pass(time.Second)
		b.restore()
		pass(250 * time.Millisecond)
		q.expect(t, "it is back, and remembers nothing", 2)
		p.set(load(1))
		pass(5 * time.Millisecond)
		q.expect(t, "a change", 1)
		q.look(func() {
			if n := strings.Count(q.log.String(), "is back"); n != 2 {
				t.Errorf("%d times back:\n%s", n, q.log.String())
			}
		})
		b.lose()
		if p.Close() == nil {
			t.Error("a report that cannot be taken back is no error")
		}
		q.Close()
	})
}

// TestAServerThatHangs: a connection on which nothing comes is given up.
func TestAServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker()
		defer b.mini.Close()
		p, q := start(b, "p", load(4)), start(b, "q")
		pass(time.Second)
		b.hang(true)
		pass(2 * limit)
		q.expect(t, "it hangs", 0)
		q.look(func() {
			if q.errs[Publish] == 0 || q.errs[Receive] == 0 {
				t.Errorf("errors %v", q.errs)
			}
		})
		b.hang(false)
		pass(2 * time.Second)
		q.expect(t, "it goes on", 4)
		p.Close()
		q.Close()
	})
}

func TestWhatNobodyCanRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker()
		defer b.mini.Close()
		b.mini.SAdd("weir:inflight:{pool}", "broken", "empty")
		b.mini.HSet("weir:inflight:{pool}:broken", "sequence", "1", "a", "many")
		b.mini.HSet("weir:inflight:{pool}:empty", "a", "1 1")
		q := start(b, "q")
		pass(time.Millisecond)
		for _, text := range []string{"", "{", `{"replica":"x"}`, `{"replica":"","sequence":3}`, `{"replica":"x","sequence":3,"loads":{"a":[-1,0]}}`,
			`{"replica":"x","sequence":3,"loads":{"a":[4294967296,0]}}`, `{"replica":"x","sequence":3,"loads":{"":[1,0]}}`, strings.Repeat(" ", maxMessage+1)} {
			b.mini.Publish("weir:inflight:{pool}", text)
			pass(time.Millisecond)
		}
		b.mini.Publish("weir:inflight:{pool}", `{"replica":"x","sequence":3,"loads":{"a":[1,0]}}`)
		b.mini.Publish("weir:inflight:{pool}", `{"replica":"x","sequence":2,"loads":{"a":[9,0]}}`) // late
		b.mini.Publish("weir:inflight:{pool}", `{"replica":"y","sequence":2,"gone":true}`)
		pass(time.Millisecond)
		q.expect(t, "the one that can be read", 1)
		q.look(func() {
			if q.errs[Decode] != 10 || q.errs[Receive]+q.errs[Publish] != 0 {
				t.Errorf("errors %v\n%s", q.errs, q.log.String())
			}
		})
		q.Close()
	})
}

func TestParse(t *testing.T) {
	for _, good := range []string{"redis://127.0.0.1:6379", "redis://u:p@host:6379/3", "rediss://host", "unix:///run/redis.sock"} {
		if _, err := Parse(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "127.0.0.1:6379", "http://host", "redis://u:secret@host:port", "redis://host/name", "redis://u:secret@host:6379/%zz"} {
		_, err := Parse(bad)
		if err == nil || !strings.Contains(err.Error(), "redis://") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestCodecs(t *testing.T) {
	m := message{Replica: "r", Sequence: 7, Loads: []Load{{"10.0.0.1:8000", 3, 400}, {"[::1]:8000", 0, 1}}}
	back, err := decode(m.encode())
	if err != nil || fmt.Sprint(back) != fmt.Sprint(m) {
		t.Errorf("channel: %v %v", back, err)
	}
	fields := map[string]string{}
	for f := m.fields(); len(f) > 0; f = f[2:] {
		fields[fmt.Sprint(f[0])] = fmt.Sprint(f[1])
	}
	if back, err = fromFields("r", fields); err != nil || fmt.Sprint(back) != fmt.Sprint(m) {
		t.Errorf("hash: %v %v", back, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(message{Replica: "r", Sequence: 7, Loads: []Load{{"a", 3, 400}}}.encode())
	f.Add(`{"replica":"x","sequence":1,"gone":true}`)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := decode(text)
		if err != nil {
			return
		}
		again, err := decode(m.encode())
		if err != nil || fmt.Sprint(again) != fmt.Sprint(m) {
			t.Errorf("%v and %v, %v", m, again, err)
		}
	})
}
