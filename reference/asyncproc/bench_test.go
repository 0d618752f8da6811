package asyncproc

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
	"github.com/llm-weir/weir/reference/redisq"
	"github.com/llm-weir/weir/reference/redisq/redistest"
)

var backlog = flag.Int("backlog", 0, "messages that wait in BenchmarkBacklogMemory, which is left out without; a million takes about a minute")

// bench is an eager processor between a real server, or the embedded one where there is none, and an upstream that answers at once, or when
// it is allowed to, over a real socket.
type bench struct {
	*Server
	client  *redis.Client // the producer's own
	real    bool          // the server is a redis-server
	arrived chan string
	sent    atomic.Int64 // commands of the processor
}

func benchmark(b *testing.B, answer func()) *bench {
	r := &bench{arrived: make(chan string, 1<<16)}
	var url string
	if redistest.Found() {
		url, r.real = "redis://"+redistest.Start(b).Addr(), true
	} else {
		b.Log("no redis-server on PATH: the figures are those of the embedded server")
		url = "redis://" + miniredis.RunT(b).Addr()
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r2 *http.Request) {
		_, _ = io.Copy(io.Discard, r2.Body)
		answer()
		fmt.Fprint(w, "{}")
		r.arrived <- ""
	}))
	b.Cleanup(upstream.Close)
	f := asyncconfig.Flags{Concurrency: 64, Transport: "redis-sortedset", Durability: "at-least-once", DrainTimeout: time.Second, Eager: true,
		TransportConfig: fmt.Sprintf(`{"url":%q,"batch_size":500,"queues":[{"queue_name":"q","igw_base_url":%q}]}`, url, upstream.URL)}
	c, err := asyncconfig.NewLoader(f, nil, nil).Load()
	if err != nil {
		b.Fatal(err)
	}
	connect := func() *redis.Client {
		c, err := redisq.NewClient(url)
		if err != nil {
			b.Fatal(err)
		}
		return c
	}
	r.client = connect()
	b.Cleanup(func() { r.client.Close() })
	counted := connect()
	counted.AddHook(counter{&r.sent})
	if r.Server, err = Serve(Options{Config: c, Redis: func() *redis.Client { return counted }, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(r.Close)
	return r
}

// counter counts the commands that a client sends; a script is one.
type counter struct{ n *atomic.Int64 }

func (c counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

func (c counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

// executed is how many commands the server has executed, those inside scripts included; the embedded one does not tell.
func (r *bench) executed(b *testing.B) float64 {
	text, err := r.client.Info(context.Background(), "stats").Result()
	if err != nil && r.real {
		b.Fatal(err)
	}
	_, rest, _ := strings.Cut(text, "total_commands_processed:")
	n, _ := strconv.ParseFloat(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]), 64)
	return n
}

// load puts n messages into the queue.
func (r *bench) load(b *testing.B, n int) {
	ctx := context.Background()
	deadline := time.Now().Unix() + 3600
	for i := 0; i < n; {
		pipe := r.client.Pipeline()
		for end := min(n, i+10_000); i < end; i++ {
			e, err := async.NewEnvelope(async.Request{ID: fmt.Sprint("m", i), Deadline: deadline, Payload: []byte(`{"model":"m","prompt":"hello"}`)}, async.Internal{})
			if err != nil {
				b.Fatal(err)
			}
			pipe.Do(ctx, "ZADD", "q", deadline, e.Encode())
		}
		if _, err := pipe.Exec(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func (r *bench) ring(b *testing.B) {
	if err := r.client.Publish(context.Background(), redisq.WakeChannel("q"), "").Err(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkMessages is the way of a message through one queue, result included, with a backlog; the clock runs while it is loaded too.
func BenchmarkMessages(b *testing.B) {
	r := benchmark(b, func() {})
	b.ResetTimer()
	r.load(b, b.N)
	sent, executed := r.sent.Load(), r.executed(b)
	r.ring(b)
	for range b.N {
		<-r.arrived
	}
	stop, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if !r.d.writer.flush(stop) {
		b.Fatal("results are missing")
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
	b.ReportMetric(float64(r.sent.Load()-sent)/float64(b.N), "commands/message")
	if r.real {
		b.ReportMetric((r.executed(b)-executed)/float64(b.N), "executed/message")
	}
}

// BenchmarkIdleLatency is the time from a submission to the arrival at the gateway, with nothing else to do.
func BenchmarkIdleLatency(b *testing.B) {
	r := benchmark(b, func() {})
	ctx := context.Background()
	var took []time.Duration
	for i := range b.N {
		from := time.Now()
		q := async.Request{ID: fmt.Sprint("m", i), Deadline: from.Unix() + 60, Payload: []byte(`{}`)}
		if _, err := redisq.Submit(ctx, r.client, "q", "", q, from); err != nil {
			b.Fatal(err)
		}
		<-r.arrived
		took = append(took, time.Since(from))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkBacklogMemory is the heap of the process, without what is garbage, after 10,000 messages of a backlog, with all workers busy.
// The upstream and its 64 connections are part of it at every length.
func BenchmarkBacklogMemory(b *testing.B) {
	if *backlog == 0 {
		b.Skip("-backlog=N says how many messages wait")
	}
	const done, busy = 10_000, 64
	for _, n := range []int{done + 1000, done + *backlog} {
		b.Run(fmt.Sprintf("waiting=%d", n-done), func(b *testing.B) {
			if b.N > 1 {
				b.Skip("once is enough: -benchtime 1x")
			}
			var answered atomic.Int64
			hold, held := make(chan struct{}), make(chan struct{}, busy)
			release := sync.OnceFunc(func() { close(hold) })
			r := benchmark(b, func() {
				if answered.Add(1) > done {
					held <- struct{}{}
					<-hold
				}
			})
			if !r.real {
				b.Skip("the embedded server keeps the backlog in this process")
			}
			b.Cleanup(release) // before those of benchmark, which wait for the upstream
			r.load(b, n)
			r.ring(b)
			for range busy {
				<-held
			}
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			left, err := r.client.ZCard(context.Background(), "q").Result()
			if err != nil || left < int64(n-done)/10 {
				b.Fatalf("%d still wait, %v", left, err)
			}
			b.ReportMetric(float64(m.HeapAlloc)/1e6, "heap-MB")
			b.ReportMetric(float64(left), "waiting")
			release()
		})
	}
}
