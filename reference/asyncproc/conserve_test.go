package asyncproc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/redisq"
)

// weather makes the gateway answer at random after a random time, the same way for one seed.
func (r *rig) weather(seed uint64) {
	rng, mu := rand.New(rand.NewPCG(seed, 2)), sync.Mutex{}
	r.answer(func(ctx context.Context, a arrival) (int, http.Header, string, error) {
		mu.Lock()
		d, k := time.Duration(rng.IntN(400))*time.Millisecond, rng.IntN(10)
		mu.Unlock()
		if !clock.Sleep(ctx, d) {
			return 0, nil, "", ctx.Err()
		}
		switch k {
		case 0:
			return 503, nil, "", nil
		case 1:
			return 429, http.Header{"Retry-After": {"1"}}, "", nil
		case 2:
			return 404, nil, "", nil
		case 3:
			return 0, nil, "", errors.New("reset")
		}
		return 200, nil, "ok " + a.id, nil
	})
}

const limited = `,"gate_type":"composite","gate_params":{"gates":[{"gate_type":"redis-quota","gate_params":{"address":"x:1","mode":"concurrency","limit":3}},
	{"gate_type":"local-max-concurrency","gate_params":{"limit":5}}]}`

// TestConservationOverDrains: at whatever moment the processor is told to end, every request has exactly one result in the end, and
// nothing is held (AP-DRAIN-04, AP-DRAIN-07, AP-QUOTA-04).
func TestConservationOverDrains(t *testing.T) {
	for seed := range uint64(24) {
		bubble(t, func(t *testing.T, r *rig) {
			ctx := context.Background()
			rng := rand.New(rand.NewPCG(seed, 1))
			r.flags.Concurrency, r.flags.DrainTimeout = 1+rng.IntN(6), time.Duration(rng.IntN(500))*time.Millisecond
			r.flags.Durability = []string{"at-least-once", "at-most-once"}[seed%2]
			r.flags.Eager = seed%4 < 2
			r.weather(seed)
			// Polls are seldom, because most of the time below is spent waiting for the last retries.
			doc := `{"url":"redis://broker:6379","poll_interval_ms":500,"queues":[` + queueEntry(limited) + `]}`
			s := r.serve(doc)
			for i := range 30 {
				r.submit("q", fmt.Sprint("m", i), time.Hour, func(q *async.Request) { q.Metadata = map[string]string{"userid": fmt.Sprint(i % 3)} })
			}
			for range 3 {
				r.pass(time.Duration(rng.IntN(1500)) * time.Millisecond)
				if err := s.Shutdown(ctx); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if n := r.inBroker("q") + len(r.results("result-list")); n != 30 {
					t.Fatalf("seed %d: %d of 30 are somewhere", seed, n)
				}
				s = r.serve(doc)
			}
			r.pass(6 * time.Minute)
			ids := map[string]int{}
			for _, res := range r.results("result-list") {
				ids[res.ID]++
			}
			for i := range 30 {
				if n := ids[fmt.Sprint("m", i)]; n != 1 {
					t.Errorf("seed %d: m%d has %d results", seed, i, n)
				}
			}
			if err := s.Shutdown(ctx); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			if keys := r.client.Keys(ctx, "quota:*").Val(); len(keys) > 0 {
				t.Errorf("seed %d: %v are left", seed, keys)
			}
		})
	}
}

// TestAccounting: new requests are as many as successes, failures, expiries, drops and cancellations together (AP-MET-24).
func TestAccounting(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.flags.PoolConfigFile = "pools.json"
		r.write("pools.json", `[{"id":"default","workers":4,"gate_type":"tier-priority-admission","gate_params":{"saturation_gate":"redis",
			"saturation_gate_params":{"address":"x:1"}}}]`)
		r.weather(7)
		s := r.serve(fmt.Sprintf(base, queueEntry(`,"labels":{"tier":"interactive"},"gate_type":"redis-quota",
			"gate_params":{"address":"x:1","limit":5,"window":"1h","gating_mode":"classifying"}`)))
		defer s.Close()
		for i := range 60 {
			token := r.submit("q", fmt.Sprint("m", i), time.Duration(1+i)*time.Second, func(q *async.Request) { q.Metadata = map[string]string{"userid": "u"} })
			if i%7 == 0 {
				redisq.Cancel(ctx, r.client, fmt.Sprint("m", i), token)
			}
		}
		r.raw("q", `{"request_kind":"plain","data":{"id":"late","deadline":1,"payload":{}}}`)
		r.pass(1500 * time.Millisecond)
		r.client.Set(ctx, "dispatch-gate-budget", "0", 0) // what is overflow now is dropped
		r.submit("q", "dropped", time.Minute, func(q *async.Request) { q.Metadata = map[string]string{"userid": "u"} })
		r.pass(2 * time.Second)
		r.client.Del(ctx, "dispatch-gate-budget")
		r.pass(3 * time.Minute)
		sum := 0.0
		for _, name := range []string{"successful_requests_total", "failed_requests_total", "exceeded_deadline_requests_total", "cancelled_requests_total"} {
			n := r.series(s, name)
			if sum += n; n <= 0 {
				t.Errorf("%s is %v: nothing of this kind happened", name, n)
			}
		}
		dropped := r.series(s, "gate_decisions_total", "queue_id", "", "reason", "dropped")
		if sum += dropped; dropped <= 0 {
			t.Error("nothing was dropped")
		}
		want(t, "requests", r.series(s, "request_total"), 62)
		want(t, "outcomes", sum, 62)
		want(t, "results", len(r.results("result-list")), 62)
		want(t, "left", r.inBroker("q"), 0)
	})
}
