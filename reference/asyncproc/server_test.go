package asyncproc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/redisq"
)

// TestPollRate: the defaults take ten messages a second, each ends in one result in the order of its deadline (AP-TRN-01, AP-CFG-06).
func TestPollRate(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		s := r.serve(`{"url":"redis://broker:6379","queues":[` + queueEntry("") + `]}`)
		defer s.Close()
		for i := range 35 {
			r.submit("q", fmt.Sprint("m", 34-i), time.Minute+time.Duration(34-i)*time.Second)
		}
		r.pass(5 * time.Second)
		perSecond := map[time.Duration]int{}
		for i, a := range r.seen() {
			perSecond[a.at.Truncate(time.Second)]++
			if i/10 != mustAtoi(a.id[1:])/10 {
				t.Errorf("%s arrived as number %d", a.id, i)
			}
		}
		want(t, "arrivals per second", fmt.Sprint(perSecond), "map[1s:10 2s:10 3s:10 4s:5]")
		ids := map[string]int{}
		for _, res := range r.results("result-list") {
			ids[res.ID]++
			want(t, res.ID, fmt.Sprintf("%d %s%s", res.StatusCode, res.Payload, res.ErrorCode), "200 ok "+res.ID)
		}
		want(t, "results", len(ids), 35)
		want(t, "left in the broker", r.inBroker("q"), 0)
	})
}

func mustAtoi(s string) int {
	n := 0
	fmt.Sscan(s, &n)
	return n
}

// TestRetry: a 503 and a 429 are made good without anybody's help, once each, inside the envelope (AP-RETRY-01, -02, -06, -08, AP-MET-02, -08).
func TestRetry(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.answer(func(_ context.Context, a arrival) (int, http.Header, string, error) {
			switch {
			case a.id == "gone":
				return 404, nil, `{"error":"x"}`, nil
			case a.n == 1 && a.id == "shed":
				return 429, http.Header{"Retry-After": {"9"}}, "", nil
			case a.n == 1:
				return 503, nil, "", nil
			case a.n == 2 && a.id == "reset":
				return 0, nil, "", errors.New("connection reset")
			}
			return 200, nil, "done", nil
		})
		s := r.serve(fmt.Sprintf(base, queueEntry(`,"request_path_url":"/v1/x"`)))
		defer s.Close()
		for _, id := range []string{"one", "shed", "reset", "gone"} {
			r.submit("q", id, time.Minute, func(q *async.Request) {
				q.Headers, q.Metadata = map[string]string{"X-A": "b"}, map[string]string{"userid": "u"}
				q.Payload = []byte(`{"N":"` + id + `", "big": 9007199254740993,"s":"<&>"}`)
			})
		}
		r.pass(50 * time.Second)
		at := map[string][]time.Duration{}
		for _, a := range r.seen() {
			at[a.id] = append(at[a.id], a.at)
			want(t, "body", a.body, `{"N":"`+a.id+`", "big": 9007199254740993,"s":"<&>"}`)
			want(t, "headers", a.header.Get("X-A")+a.header.Get("X-Llm-D-Inference-Fairness-Id")+a.path, "bu/v1/x")
		}
		gap := func(id string, i int, low, high time.Duration) {
			t.Helper()
			if g := at[id][i] - at[id][i-1]; g < low || g > high {
				t.Errorf("%s: attempt %d after %v, want %v to %v", id, i+1, g, low, high)
			}
		}
		gap("one", 1, 2*time.Second, 4200*time.Millisecond)
		gap("shed", 1, 9*time.Second, 11500*time.Millisecond)
		gap("reset", 2, 4*time.Second, 8200*time.Millisecond)
		want(t, "attempts of gone", len(at["gone"]), 1)
		want(t, "results", len(r.results("result-list")), 4)
		want(t, "requests", r.series(s, "request_total"), 4)
		want(t, "retries", r.series(s, "request_retries_total"), 4)
		want(t, "sheds", r.series(s, "shedded_requests_total"), 1)
		want(t, "successes", r.series(s, "successful_requests_total"), 3)
		want(t, "failures", r.series(s, "failed_requests_total"), 1)
		want(t, "attempts", r.series(s, "inference_latency_time_millis"), 8)
	})
}

// TestRoutes: the queue's own list, the message's, the general one; the expired go the same way, and the list expires (AP-CFG-14, -15, AP-DL-02).
func TestRoutes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		past := fmt.Sprint(time.Now().Unix() - 10)
		envelope := func(id, deadline, internal string) string {
			return `{"internal":{` + internal + `},"request_kind":"plain","data":{"id":"` + id + `","deadline":` + deadline + `,"payload":{}}}`
		}
		r.raw("q", envelope("own", past, ""))
		r.raw("q", envelope("own2", "23472348233323", `"result_queue_name":"mine"`))
		r.raw("r", envelope("mine", past, `"result_queue_name":"mine"`))
		r.raw("r", envelope("general", past, `"queue_id":"elsewhere"`))
		s := r.serve(fmt.Sprintf(base, queueEntry(`,"result_queue_name":"res-q","result_ttl_seconds":30`)+`,{"queue_name":"r","igw_base_url":"http://gw"}`))
		defer s.Close()
		r.pass(time.Second)
		ids := func(list string) (out []string) {
			for _, res := range r.results(list) {
				out = append(out, res.ID)
			}
			return out
		}
		want(t, "the queue's list", fmt.Sprint(ids("res-q")), "[own own2]")
		want(t, "the message's list", fmt.Sprint(ids("mine")), "[mine]")
		want(t, "the general list", fmt.Sprint(ids("result-list")), "[general]")
		if res := r.results("res-q")[0]; res.StatusCode != 0 || res.ErrorCode != "DEADLINE_EXCEEDED" || res.Payload != `{"error":"deadline exceeded"}` || res.ErrorMessage == "" {
			t.Errorf("%+v", res)
		}
		if ttl := r.client.TTL(ctx, "res-q").Val(); ttl <= 0 || ttl > 30*time.Second {
			t.Errorf("ttl %v", ttl)
		}
		want(t, "ttl of the others", r.client.TTL(ctx, "mine").Val(), -1)
		want(t, "expired", r.series(s, "exceeded_deadline_requests_total", "queue_id", "q"), 1)
	})
}

// TestMalformed: what cannot be processed is answered if it has an id and kept aside if not; the rest goes on (AP-DL-01, AP-WIRE-09).
func TestMalformed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		for _, m := range []string{`junk`, `{"id":"bare","deadline":9999999999,"payload":{}}`, `{"request_kind":"plain","data":{"deadline":9999999999,"payload":{}}}`} {
			r.raw("q", m)
		}
		for i, d := range []string{`"x"`, `0`, `-5`, `1.5`} {
			r.raw("q", fmt.Sprintf(`{"request_kind":"plain","data":{"id":"bad%d","deadline":%s,"payload":{}}}`, i, d))
		}
		r.submit("q", "good", time.Minute)
		s := r.serve(fmt.Sprintf(base, queueEntry("")))
		defer s.Close()
		r.pass(time.Second)
		want(t, "arrivals", len(r.seen()), 1)
		codes := map[async.Code]int{}
		for _, res := range r.results("result-list") {
			codes[res.ErrorCode]++
		}
		want(t, "results", fmt.Sprint(codes), "map[:1 INVALID_REQUEST:4]")
		want(t, "dead letters", r.client.LLen(context.Background(), "q:dead-letter").Val(), 3)
		want(t, "dead letters counted", r.series(s, "dead_letters_total"), 3)
	})
}

// TestDrain: what runs may finish, what waits goes back, nothing is started (AP-DRAIN-01, AP-DRAIN-03, AP-DRAIN-09).
func TestDrain(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.flags.Concurrency = 2
		release := r.hold()
		s := r.serve(fmt.Sprintf(base, queueEntry("")))
		for i := range 20 {
			r.submit("q", fmt.Sprint("m", i), time.Minute)
		}
		r.pass(time.Second)
		want(t, "in flight", r.series(s, "inflight_requests"), 2)
		want(t, "waiting", r.series(s, "queue_depth"), 10)
		done := make(chan error)
		go func() { done <- s.Shutdown(context.Background()) }()
		r.pass(time.Second)
		release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		want(t, "arrivals", len(r.seen()), 2)
		want(t, "results", len(r.results("result-list")), 2)
		want(t, "left", r.client.ZCard(context.Background(), "q").Val(), 18)
		want(t, "claims", r.client.HLen(context.Background(), "q:claimed").Val(), 0)
	})
}

// TestDrainTimeout: what does not finish in time is cancelled and given back, and done after a restart (AP-DRAIN-02, AP-DRAIN-10).
func TestDrainTimeout(t *testing.T) {
	for _, durability := range []string{"at-least-once", "at-most-once"} {
		bubble(t, func(t *testing.T, r *rig) {
			r.flags.DrainTimeout, r.flags.Durability = 2*time.Second, durability
			r.hold()
			s := r.serve(fmt.Sprintf(base, queueEntry("")))
			for i := range 3 {
				r.submit("q", fmt.Sprint("m", i), time.Minute)
			}
			r.pass(time.Second)
			from := time.Now()
			if err := s.Shutdown(context.Background()); err != nil || time.Since(from) > 2100*time.Millisecond {
				t.Errorf("%v after %v", err, time.Since(from))
			}
			want(t, "in the broker", r.client.ZCard(context.Background(), "q").Val(), 3)
			r.answer(nil)
			s = r.serve(fmt.Sprintf(base, queueEntry("")))
			r.pass(time.Second)
			want(t, "results", len(r.results("result-list")), 3)
			want(t, "requests", r.series(s, "request_total"), 3)
			want(t, "retries", r.series(s, "request_retries_total"), 0)
			s.Close()
		})
	}
}

// TestKill: with leases a kill loses nothing and each request has one result; without, what was in the process is gone (AP-DRAIN-05).
func TestKill(t *testing.T) {
	for _, c := range []struct {
		durability string
		results    int
	}{{"at-least-once", 40}, {"at-most-once", 34}} {
		bubble(t, func(t *testing.T, r *rig) {
			r.flags.Concurrency, r.flags.Durability = 4, c.durability
			r.hold()
			s := r.serve(fmt.Sprintf(base, queueEntry("")))
			for i := range 40 {
				r.submit("q", fmt.Sprint("m", i), time.Hour)
			}
			r.pass(time.Second)
			want(t, "in flight", len(r.seen()), 4)
			s.Close() // nothing is given back
			r.answer(nil)
			s = r.serve(fmt.Sprintf(base, queueEntry("")))
			r.pass(6 * time.Minute) // lease and reclaim
			ids := map[string]int{}
			for _, res := range r.results("result-list") {
				ids[res.ID]++
				want(t, res.ID, ids[res.ID], 1)
			}
			want(t, c.durability+": results", len(ids), c.results)
			want(t, "left", r.inBroker("q"), 0)
			s.Close()
		})
	}
}

// TestZombie: whoever comes back after its lease publishes nothing (AP-DRAIN-06).
func TestZombie(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		release := r.hold()
		zombie := r.serve(fmt.Sprintf(base, queueEntry("")))
		defer zombie.Close()
		r.submit("q", "a", time.Hour)
		r.pass(time.Second)
		r.client.ZAdd(context.Background(), "q:claims-idx", redis.Z{Score: 1, Member: r.client.ZRange(context.Background(), "q:claims-idx", 0, 0).Val()[0]})
		if n, err := (&redisq.Leased{Client: r.client}).Reclaim(context.Background(), "q"); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		r.pass(time.Second) // taken again, by the same process, as a second delivery
		want(t, "arrivals", len(r.seen()), 2)
		release()
		r.pass(time.Second)
		want(t, "results", len(r.results("result-list")), 1)
		want(t, "fenced", r.series(zombie, "fenced_results_total"), 1)
		want(t, "successes", r.series(zombie, "successful_requests_total"), 1)
	})
}

// TestOutage: results that come while the broker is away are kept until it is back (AP-RES-10); after the outage work goes on (AP-TRN-15).
func TestOutage(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		release := r.hold()
		s := r.serve(fmt.Sprintf(base, queueEntry("")))
		defer s.Close()
		for i := range 15 {
			r.submit("q", fmt.Sprint("m", i), time.Hour)
		}
		r.pass(time.Second)
		r.broker.SetError("LOADING away")
		release()
		r.pass(30 * time.Second)
		r.broker.SetError("")
		r.pass(5 * time.Second)
		want(t, "results", len(r.results("result-list")), 15)
		r.submit("q", "late", time.Hour)
		r.pass(time.Second)
		want(t, "results", len(r.results("result-list")), 16)
		want(t, "fenced", r.series(s, "fenced_results_total"), 0)
	})
}

// TestCancel: before dispatch nothing is sent; in flight the call is dropped; another generation is not meant (AP-RES-05).
func TestCancel(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.hold()
		token := r.submit("q", "before", time.Hour)
		redisq.Cancel(ctx, r.client, "before", token)
		running := r.submit("q", "running", time.Hour)
		redisq.Cancel(ctx, r.client, "running", "another generation")
		s := r.serve(fmt.Sprintf(base, queueEntry("")))
		defer s.Close()
		r.pass(3 * time.Second)
		want(t, "arrivals", len(r.seen()), 1)
		redisq.Cancel(ctx, r.client, "running", running)
		r.pass(2 * time.Second)
		for _, res := range r.results("result-list") {
			want(t, res.ID, res.ErrorCode, async.CodeCancelled)
		}
		want(t, "results", len(r.results("result-list")), 2)
		want(t, "in flight", r.series(s, "inflight_requests"), 0)
		want(t, "cancelled", r.series(s, "cancelled_requests_total"), 2)
		want(t, "marks left", r.client.Exists(ctx, "request-cancel:before", "request-cancel:running", "request-active:before").Val(), 0)
	})
}

// TestQuota: one tenant's limit is kept, does not hold up another tenant, and is back at nothing in the end (AP-QUOTA-03, -04, -10, -11, -12).
func TestQuota(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		release := r.hold()
		s := r.serve(fmt.Sprintf(base, queueEntry(`,"gate_type":"redis-quota","gate_params":{"address":"x:1","mode":"concurrency","limit":2,"window":"2s"}`)))
		defer s.Close()
		user := func(u string) func(*async.Request) {
			return func(q *async.Request) { q.Metadata = map[string]string{"userid": u} }
		}
		for i := range 8 {
			r.submit("q", "same", time.Hour+time.Duration(i)*time.Second, user("u"))
		}
		r.submit("q", "v", 2*time.Hour, user("v"))
		r.pass(2 * time.Second)
		perUser := func() string {
			n := map[string]int{}
			for _, a := range r.seen() {
				n[a.id]++
			}
			return fmt.Sprint(n)
		}
		want(t, "arrivals", perUser(), "map[same:2 v:1]")
		r.pass(time.Minute) // far longer than the window
		want(t, "arrivals after a minute", perUser(), "map[same:2 v:1]")
		want(t, "counter", r.client.Get(context.Background(), "quota:userid:u").Val(), "2")
		if n := r.series(s, "gate_decisions_total", "reason", "quota_exhausted"); n < 5 {
			t.Errorf("quota_exhausted: %v", n)
		}
		release()
		r.pass(5 * time.Second)
		want(t, "results", len(r.results("result-list")), 9)
		want(t, "keys of quotas", len(r.client.Keys(context.Background(), "quota:*").Val()), 0)
	})
}

// TestBudgetGate: the number under the key rules, in both directions, and is shown (AP-GATE-05, AP-MET-16, AP-MET-17, AP-MET-18).
func TestBudgetGate(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		set := func(v string) { r.client.Set(ctx, "dispatch-gate-budget", v, 0) }
		set("0")
		s := r.serve(fmt.Sprintf(base, queueEntry(`,"gate_type":"redis","gate_params":{"address":"x:1"}`)))
		defer s.Close()
		for _, reason := range []string{"gate_closed", "quota_exhausted", "dropped", "error"} {
			want(t, reason+" at the start", r.series(s, "gate_decisions_total", "reason", reason), 0)
		}
		r.pass(950 * time.Millisecond)
		want(t, "closed polls of an empty queue", r.series(s, "gate_decisions_total", "reason", "gate_closed"), 0)
		for i := range 60 {
			r.submit("q", fmt.Sprint("m", i), time.Hour)
		}
		r.pass(time.Second)
		want(t, "arrivals at 0", len(r.seen()), 0)
		want(t, "closed polls", r.series(s, "gate_decisions_total", "reason", "gate_closed"), 10)
		set("0.35")
		r.pass(time.Second)
		want(t, "arrivals at 0.35", len(r.seen()), 30)
		want(t, "budget", r.series(s, "dispatch_budget"), 0.35)
		set("0")
		r.pass(time.Second)
		want(t, "arrivals at 0 again", len(r.seen()), 30)
		r.client.Del(ctx, "dispatch-gate-budget")
		r.pass(350 * time.Millisecond)
		want(t, "arrivals without a key", len(r.seen()), 60)
	})
}

// TestPoolWait: workers park while the pool's gate is closed; nothing goes to the retry set; a drain is not held up (AP-POOL-07, AP-DRAIN-08).
func TestPoolWait(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.client.Set(ctx, "dispatch-gate-budget", "0", 0)
		r.flags.PoolConfigFile = "pools.json"
		r.write("pools.json", `[{"id":"default","workers":2,"gate_type":"wait-on-refuse","gate_params":{"gate":{"gate_type":"redis","gate_params":{"address":"x:1"}}}}]`)
		s := r.serve(fmt.Sprintf(base, queueEntry("")))
		for i := range 4 {
			r.submit("q", fmt.Sprint("m", i), time.Hour)
		}
		r.pass(3 * time.Second)
		want(t, "arrivals", len(r.seen()), 0)
		want(t, "in the queue", r.client.ZCard(ctx, "q").Val(), 0)
		want(t, "retries", r.client.ZCard(ctx, "retry-sortedset").Val(), 0)
		want(t, "decisions of the pool", r.series(s, "gate_decisions_total", "queue_id", "", "pool_name", "default", "reason", "gate_closed"), 2)
		r.client.Set(ctx, "dispatch-gate-budget", "1", 0)
		r.pass(time.Second)
		want(t, "arrivals", len(r.seen()), 4)
		r.client.Set(ctx, "dispatch-gate-budget", "0", 0)
		r.submit("q", "parked", time.Hour)
		r.pass(time.Second)
		from := time.Now()
		if err := s.Shutdown(ctx); err != nil || time.Since(from) > 100*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(from))
		}
		want(t, "in the queue", r.client.ZCard(ctx, "q").Val(), 1)
	})
}

// TestReload: queues come and go while the process runs; what is wrong changes nothing (AP-RELOAD-01 to -04, -07, -08).
func TestReload(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.flags.WatchInterval = time.Second
		limited := queueEntry(`,"gate_type":"local-max-concurrency","gate_params":{"limit":2}`)
		other := `{"queue_name":"r","igw_base_url":"http://gw","gate_type":"redis","gate_params":{"address":"x:1"}}`
		release := r.hold()
		s := r.serve(fmt.Sprintf(base, limited))
		defer s.Close()
		for i := range 5 {
			r.submit("q", fmt.Sprint("q", i), time.Hour)
		}
		r.submit("r", "r0", time.Hour)
		count := func(letter string) (n int) {
			for _, a := range r.seen() {
				if strings.HasPrefix(a.id, letter) {
					n++
				}
			}
			return n
		}
		r.pass(3 * time.Second)
		want(t, "arrivals of q", count("q"), 2)
		r.write("t.json", fmt.Sprintf(base, limited)[:30])
		r.pass(2 * time.Second)
		r.write("t.json", strings.Replace(fmt.Sprintf(base, limited+","+other), `"poll_interval_ms":100`, `"poll_interval_ms":50`, 1))
		r.pass(2 * time.Second)
		want(t, "arrivals of r", count("r"), 0)
		want(t, "failed reloads", r.series(s, "queue_config_reloads_total", "result", "error"), 4)
		r.write("t.json", fmt.Sprintf(base, limited+","+other))
		r.pass(2 * time.Second)
		want(t, "arrivals of r", count("r"), 1)
		want(t, "arrivals of q, whose gate has kept its state", count("q"), 2)
		r.write("t.json", fmt.Sprintf(base, ""))
		r.pass(2 * time.Second)
		release()
		r.submit("r", "r1", time.Hour)
		r.pass(2 * time.Second)
		want(t, "arrivals", len(r.seen()), 3)
		want(t, "results of what ran", len(r.results("result-list")), 3)
		want(t, "backlog of q", r.client.ZCard(context.Background(), "q").Val(), 3)
		want(t, "budget of a queue that is gone", r.series(s, "dispatch_budget", "queue_id", "q"), -1)
		r.write("t.json", fmt.Sprintf(base, queueEntry("")+","+other))
		r.pass(2 * time.Second)
		want(t, "results", len(r.results("result-list")), 7)
	})
}

// TestBacklogMetrics: what the broker holds and how near its deadlines are (AP-MET-12, AP-MET-14, AP-CLI-12).
func TestBacklogMetrics(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.client.Set(context.Background(), "dispatch-gate-budget", "0", 0)
		r.flags.BacklogInterval = time.Second
		s := r.serve(fmt.Sprintf(base, queueEntry(`,"gate_type":"redis","gate_params":{"address":"x:1"}`)))
		defer s.Close()
		for i, left := range []time.Duration{3, 40, 400} {
			r.submit("q", fmt.Sprint("m", i), left*time.Second)
		}
		r.pass(1500 * time.Millisecond)
		want(t, "backlog", r.series(s, "broker_backlog"), 3)
		buckets := func() string {
			families, _ := s.Metrics().Gatherer().Gather()
			out := ""
			for _, f := range families {
				if f.GetName() == prefix+"deadline_proximity_millis" {
					for _, b := range f.GetMetric()[0].GetHistogram().GetBucket() {
						out += fmt.Sprint(b.GetCumulativeCount())
					}
				}
			}
			return out
		}
		want(t, "cumulative buckets", buckets(), "00111222333333")
		r.pass(5 * time.Second)
		want(t, "cumulative buckets later", buckets()[:1], "1")
	})
}

// TestEager: a full batch is followed by the next at once, and a producer's word ends the wait for the next poll.
func TestEager(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.flags.Eager = true
		s := r.serve(`{"url":"redis://broker:6379","queues":[` + queueEntry("") + `]}`)
		defer s.Close()
		synctest.Wait()
		for i := range 200 {
			r.submit("q", fmt.Sprint("m", i), time.Hour)
		}
		r.pass(10 * time.Millisecond)
		want(t, "arrivals", len(r.seen()), 200)
	})
}

// TestDeadlineInFlight: the call ends with the deadline, or with the request timeout (AP-DL-04, AP-CLI-09).
func TestDeadlineInFlight(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.flags.RequestTimeout = 5 * time.Second
		ended := make(chan time.Duration, 2)
		r.answer(func(ctx context.Context, _ arrival) (int, http.Header, string, error) {
			<-ctx.Done()
			ended <- time.Since(r.start)
			return 0, nil, "", ctx.Err()
		})
		s := r.serve(fmt.Sprintf(base, queueEntry("")))
		defer s.Close()
		r.submit("q", "near", 2*time.Second)
		r.submit("q", "far", time.Hour)
		r.pass(10 * time.Second)
		want(t, "the deadline", (<-ended).Truncate(time.Second), 2*time.Second)
		want(t, "the timeout", (<-ended).Truncate(time.Second), 5*time.Second)
		want(t, "expired", r.series(s, "exceeded_deadline_requests_total"), 2)
		want(t, "results", len(r.results("result-list")), 2)
	})
}

// TestChannels: requests and results over channels, retries in a sorted set, gates of queues ignored (AP-TRN-05, -06, -07, AP-WIRE-02).
func TestChannels(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := context.Background()
		r.flags.Transport = "redis-pubsub"
		doc := `{"url":"redis://broker:6379","queues":[{"queue_name":"c","igw_base_url":"http://gw","gate_type":"redis","gate_params":{"address":"x:1"}}]}`
		request := func(id string) async.Request {
			return async.Request{ID: id, Deadline: time.Now().Unix() + 60, Payload: []byte(fmt.Sprintf(`{"N":%q}`, id))}
		}
		if heard, err := redisq.Publish(ctx, r.client, "c", request("early")); heard != 0 || err != nil {
			t.Fatal(heard, err)
		}
		r.answer(func(_ context.Context, a arrival) (int, http.Header, string, error) {
			if a.id == "again" && a.n == 1 {
				return 503, nil, "", nil
			}
			return 200, nil, "ok", nil
		})
		sub := r.client.Subscribe(ctx, "result-queue")
		defer sub.Close()
		words := sub.Channel()
		s := r.serve(doc)
		r.pass(time.Second)
		for _, id := range []string{"one", "again"} {
			if heard, err := redisq.Publish(ctx, r.client, "c", request(id)); heard != 1 || err != nil {
				t.Fatal(heard, err)
			}
		}
		r.client.Publish(ctx, "c", `{"id":"bare","deadline":9999999999,"payload":{}}`)
		r.pass(time.Second)
		want(t, "retries waiting", r.client.ZCard(ctx, "retry-sortedset").Val(), 1)
		r.client.ZAdd(ctx, "retry-sortedset", redis.Z{Score: 1, Member: `{"internal":{"request_queue_name":"other"},"request_kind":"plain","data":{"id":"x","deadline":1,"payload":{}}}`})
		r.pass(10 * time.Second)
		want(t, "arrivals", len(r.seen()), 3)
		want(t, "retries of another queue", r.client.ZCard(ctx, "retry-sortedset").Val(), 1)
		want(t, "results", len(words), 2)
		want(t, "dead letters", r.client.LLen(ctx, "c:dead-letter").Val(), 1)

		release := r.hold()
		defer release()
		redisq.Publish(ctx, r.client, "c", request("kept"))
		r.pass(time.Second)
		stop, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if err := s.Shutdown(stop); err != nil {
			t.Error(err)
		}
		want(t, "kept for the next processor", r.client.ZCard(ctx, "retry-sortedset").Val(), 2)
		r.answer(nil)
		s = r.serve(doc)
		defer s.Close()
		r.pass(3 * time.Second)
		want(t, "results", len(words), 3)
	})
}
