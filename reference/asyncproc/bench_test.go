package asyncproc

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
	"github.com/llm-weir/weir/reference/redisq"
)

// benchmark starts an eager processor between a real server, or the embedded one where there is none, and an upstream that answers at
// once over a real socket.
func benchmark(b *testing.B) (s *Server, arrived chan string) {
	var url string
	if _, err := exec.LookPath("redis-server"); err == nil {
		url = "redis://" + redisServer(b)
	} else {
		b.Log("no redis-server on PATH: the figures are those of the embedded server")
		url = "redis://" + miniredis.RunT(b).Addr()
	}
	arrived = make(chan string, 1<<16)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, "{}")
		arrived <- ""
	}))
	b.Cleanup(upstream.Close)
	f := asyncconfig.Flags{Concurrency: 64, Transport: "redis-sortedset", Durability: "at-least-once", DrainTimeout: time.Second, Eager: true,
		TransportConfig: fmt.Sprintf(`{"url":%q,"batch_size":500,"queues":[{"queue_name":"q","igw_base_url":%q}]}`, url, upstream.URL)}
	c, err := asyncconfig.NewLoader(f, nil, nil).Load()
	if err != nil {
		b.Fatal(err)
	}
	if s, err = Serve(Options{Config: c, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	return s, arrived
}

// BenchmarkMessages is the way of a message through one queue, result included, with a backlog.
func BenchmarkMessages(b *testing.B) {
	s, arrived := benchmark(b)
	ctx := context.Background()
	pipe := s.redis.Pipeline()
	deadline := time.Now().Unix() + 3600
	for i := range b.N {
		e, err := async.NewEnvelope(async.Request{ID: fmt.Sprint("m", i), Deadline: deadline, Payload: []byte(`{"model":"m","prompt":"hello"}`)}, async.Internal{})
		if err != nil {
			b.Fatal(err)
		}
		pipe.Do(ctx, "ZADD", "q", deadline, e.Encode())
	}
	b.ResetTimer()
	if _, err := pipe.Exec(ctx); err != nil {
		b.Fatal(err)
	}
	if err := s.redis.Publish(ctx, redisq.WakeChannel("q"), "").Err(); err != nil {
		b.Fatal(err)
	}
	for range b.N {
		<-arrived
	}
	stop, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if !s.d.writer.flush(stop) {
		b.Fatal("results are missing")
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

// BenchmarkIdleLatency is the time from a submission to the arrival at the gateway, with nothing else to do.
func BenchmarkIdleLatency(b *testing.B) {
	s, arrived := benchmark(b)
	ctx := context.Background()
	var took []time.Duration
	for i := range b.N {
		from := time.Now()
		r := async.Request{ID: fmt.Sprint("m", i), Deadline: from.Unix() + 60, Payload: []byte(`{}`)}
		if _, err := redisq.Submit(ctx, s.redis, "q", "", r, from); err != nil {
			b.Fatal(err)
		}
		<-arrived
		took = append(took, time.Since(from))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
