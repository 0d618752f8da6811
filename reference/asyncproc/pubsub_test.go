package asyncproc

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/alicebob/miniredis/v2"

	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
)

// TestPubSub: requests from a subscription, results to a topic, once each; a 503 comes again by the server's redelivery; a closed budget
// stops a topic and no other; a drain gives back what it must (AP-TRN-08, AP-RETRY-11, AP-MET-09).
func TestPubSub(t *testing.T) {
	if testing.Short() {
		t.Skip("real sockets and real time")
	}
	server := pstest.NewServer()
	defer server.Close()
	t.Setenv("PUBSUB_EMULATOR_HOST", server.Addr)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := pubsub.NewClient(ctx, "p")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, topic := range []string{"open", "shut", "results"} {
		if _, err := client.TopicAdminClient.CreateTopic(ctx, &pubsubpb.Topic{Name: "projects/p/topics/" + topic}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.SubscriptionAdminClient.CreateSubscription(ctx, &pubsubpb.Subscription{Name: "projects/p/subscriptions/" + topic,
			Topic: "projects/p/topics/" + topic, AckDeadlineSeconds: 10}); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	arrivals := map[string]int{}
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ N string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		mu.Lock()
		defer mu.Unlock()
		if arrivals[body.N]++; body.N == "again" && arrivals[body.N] == 1 {
			http.Error(w, "busy", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "ok "+r.Header.Get("X-Llm-D-Inference-Fairness-Id"))
	}))
	defer gateway.Close()
	budget := miniredis.RunT(t)
	budget.Set("dispatch-gate-budget", "0")
	doc := fmt.Sprintf(`{"project_id":"p","result_topic_id":"results","batch_size":4,"topics":[{"subscriber_id":"open","igw_base_url":%q},
		{"subscriber_id":"shut","igw_base_url":%q,"gate_type":"redis","gate_params":{"address":%q}}]}`, gateway.URL, gateway.URL, budget.Addr())
	c, err := asyncconfig.NewLoader(asyncconfig.Flags{Concurrency: 8, Transport: "gcp-pubsub", TransportConfig: doc, Durability: "at-least-once",
		DrainTimeout: time.Second}, nil, nil).Load()
	if err != nil {
		t.Fatal(err)
	}
	s, err := Serve(Options{Config: c, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ping(ctx); err != nil {
		t.Error(err)
	}
	request := func(topic, id string, attributes map[string]string) {
		server.Publish("projects/p/topics/"+topic, []byte(fmt.Sprintf(`{"id":%q,"deadline":9999999999,"payload":{"N":%q},"metadata":{"userid":"own"}}`, id, id)), attributes)
	}
	request("shut", "never", nil)
	for i := range 10 {
		request("open", fmt.Sprint("m", i), map[string]string{"userid": "attribute"})
	}
	request("open", "again", nil)
	results := map[string]async.Result{}
	receive, stop := context.WithCancel(ctx)
	err = client.Subscriber("results").Receive(receive, func(_ context.Context, m *pubsub.Message) {
		m.Ack()
		var r async.Result
		_ = json.Unmarshal(m.Data, &r)
		mu.Lock()
		defer mu.Unlock()
		if _, twice := results[r.ID]; twice {
			t.Errorf("two results of %s", r.ID)
		}
		if results[r.ID] = r; len(results) == 11 {
			stop()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	want(t, "results", len(results), 11)
	want(t, "payload", results["m3"].Payload, "ok attribute")
	want(t, "attempts of again", arrivals["again"], 2)
	want(t, "attempts of never", arrivals["never"], 0)
	r := &rig{t: t}
	want(t, "successes", r.series(s, "successful_requests_total", "queue_id", "open"), 11)
	want(t, "latencies", r.series(s, "message_latency_time_millis", "queue_id", "open"), 11)
	want(t, "budget", r.series(s, "dispatch_budget", "queue_id", "shut"), 0)
	want(t, "closed", r.series(s, "gate_decisions_total", "queue_id", "shut", "reason", "gate_closed"), 1)
}
