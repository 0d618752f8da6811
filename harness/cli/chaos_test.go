package cli_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/redisq"
	"github.com/llm-weir/weir/reference/redisq/redistest"
)

var chaosRounds = flag.Int("chaos", 5, "rounds of TestChaos: a kill -9, a SIGTERM, broken connections, a kill -9 of the broker, a SIGSTOP, and so on")

// TestChaos: processors are killed, stopped and suspended, and lose their connections and their
// broker, under load on a real server. Every request ends in exactly one result, and quotas are
// back at nothing (AP-DRAIN-05, AP-DRAIN-06, AP-QUOTA-04). -chaos sets the number of rounds.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("real time")
	}
	weir, err := exec.LookPath("weir")
	if err != nil {
		t.Skip("weir is not on PATH: run by testscript.Main only")
	}
	broker := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always") // it keeps every write over a kill
	addr := broker.Addr()
	client := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2}) // unlike the processor's, it connects again by itself
	defer client.Close()
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		clock.Sleep(r.Context(), 20*time.Millisecond) // the model's time: long enough that a kill meets requests in flight
		fmt.Fprint(w, "fine")
	}))
	defer gateway.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(30+10**chaosRounds)*time.Second)
	defer cancel()
	doc := fmt.Sprintf(`{"url":"redis://%s","poll_interval_ms":20,"batch_size":50,"claim_lease_ttl_seconds":2,"claim_reclaim_interval_ms":200,
		"queues":[{"queue_name":"batch","igw_base_url":%q,"gate_type":"redis-quota","gate_params":{"address":%q,"mode":"concurrency","limit":40,"window":"2s"}}]}`,
		addr, gateway.URL, addr)
	start := func() *exec.Cmd {
		p := exec.CommandContext(ctx, weir, "processor", "--transport", "redis-sortedset", "--transport-config", doc, "--metrics-endpoint-auth=false",
			"--metrics-port", "0", "--health-port", "0", "-v", "0")
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		return p
	}
	const perRound = 400
	rng := rand.New(rand.NewPCG(1, uint64(*chaosRounds)))
	results := map[string]int{}
	took := 0
	receive := func(wait time.Duration) bool {
		v, err := redisq.Receive(ctx, client, "result-list", wait)
		if err != nil {
			t.Fatal(err)
		}
		if v == nil {
			return false
		}
		_, id, _ := strings.Cut(string(v), `"id":"`)
		id, _, _ = strings.Cut(id, `"`)
		results[id]++
		took++
		return true
	}
	victim, other := start(), start()
	for round := range *chaosRounds {
		for i := range perRound {
			r := async.Request{ID: fmt.Sprintf("%d-%d", round, i), Deadline: clock.Wall().Unix() + 600, Payload: []byte("{}"),
				Metadata: map[string]string{"userid": strconv.Itoa(i % 3)}}
			if _, err := redisq.Submit(ctx, client, "batch", "", r, clock.Wall()); err != nil {
				t.Fatal(err)
			}
		}
		for before := took + 1 + rng.IntN(perRound/2); took < before; { // the moment of the fault is drawn as a number of results
			receive(20 * time.Second)
		}
		switch round % 5 {
		case 0:
			victim.Process.Kill()
			victim.Wait()
			victim = start()
		case 1:
			victim.Process.Signal(syscall.SIGTERM)
			if err := victim.Wait(); err != nil {
				t.Error(err)
			}
			victim = start()
		case 2:
			// Whatever was written has an unknown outcome.
			for range 20 {
				client.Do(ctx, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
				receive(time.Second)
			}
		case 3:
			broker.Kill()
			broker.Start()
		case 4:
			victim.Process.Signal(syscall.SIGSTOP)
			// The other takes up what the suspended one holds, once its leases are over.
			for took < (round+1)*perRound && receive(15*time.Second) {
			}
			victim.Process.Signal(syscall.SIGCONT)
			victim, other = other, victim
		}
	}
	for took < *chaosRounds*perRound && receive(15*time.Second) {
	}
	for _, p := range []*exec.Cmd{victim, other} {
		p.Process.Signal(syscall.SIGTERM)
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
	}
	for receive(time.Second) {
	}
	lost, doubled := 0, 0
	for round := range *chaosRounds {
		for i := range perRound {
			switch n := results[fmt.Sprintf("%d-%d", round, i)]; {
			case n == 0:
				lost++
			case n > 1:
				doubled++
			}
		}
	}
	t.Logf("%d rounds, %d requests: %d lost, %d with more than one result", *chaosRounds, *chaosRounds*perRound, lost, doubled)
	if lost > 0 || doubled > 0 {
		t.Errorf("%d lost, %d doubled", lost, doubled)
	}
	checkEmpty(ctx, t, client)
}

// checkEmpty looks for what should be gone: messages, claims, quotas.
func checkEmpty(ctx context.Context, t *testing.T, client *redis.Client) {
	t.Helper()
	for _, pattern := range []string{"batch*", "retry-sortedset", "quota:*"} {
		for _, key := range client.Keys(ctx, pattern).Val() {
			// What a killed process held ends with its lease, 10 s here.
			if ttl := client.TTL(ctx, key).Val(); strings.HasPrefix(key, "quota:") && ttl > 0 && ttl <= 10*time.Second {
				continue
			}
			t.Errorf("%s is still there", key)
		}
	}
}
