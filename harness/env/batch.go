package env

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
)

// BatchRequest is a message as its producer submits it at an instant. Model servers know the request by the message's id.
func BatchRequest(scenario string, m sut.AsyncMessage, now time.Time) async.Request {
	after := m.Deadline
	if after == 0 {
		after = time.Minute
	}
	r := async.Request{ID: m.ID, Created: now.Unix(), Deadline: int64(math.Ceil(float64(now.Add(after).UnixNano()) / 1e9)), Metadata: m.Metadata, Endpoint: m.Endpoint,
		Headers: map[string]string{wire.HeaderID: m.ID, wire.HeaderScenario: scenario}, Payload: json.RawMessage(m.Payload)}
	maps.Copy(r.Headers, m.Headers)
	if m.Payload == "" {
		r.Payload = Body(sut.Request{ID: m.ID})
	}
	return r
}

// BatchLog is what was seen of a batch processor: every attempt that it made at the router, and every result.
type BatchLog struct {
	mu      sync.Mutex
	now     func() time.Duration
	out     evidence.Sink
	wake    func()
	tries   []*evidence.Observation
	nth     map[string]int
	results map[string]int
}

// NewBatchLog makes an empty log; wake hears of every change.
func NewBatchLog(now func() time.Duration, out evidence.Sink, wake func()) *BatchLog {
	return &BatchLog{now: now, out: out, wake: wake, nth: map[string]int{}, results: map[string]int{}}
}

// Submitted notes a message.
func (l *BatchLog) Submitted(queue string, r async.Request, epoch time.Time) {
	l.out.Observe(evidence.Observation{At: int64(l.now()), Message: &evidence.Message{ID: r.ID, Queue: queue, Deadline: r.Deadline*int64(time.Second) - epoch.UnixNano()}})
}

// Begin notes an attempt.
func (l *BatchLog) Begin(id string, headers map[string][]string) *evidence.Observation {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nth[id]++
	o := &evidence.Observation{At: int64(l.now()), Attempt: &evidence.Attempt{ID: id, Upstream: "gateway", Nth: l.nth[id], End: evidence.Never, Ending: evidence.Inside,
		Method: http.MethodPost, Headers: headers}}
	l.tries = append(l.tries, o)
	return o
}

// End notes how an attempt ended; the first word counts.
func (l *BatchLog) End(o *evidence.Observation, ending string, status int, reason string) {
	l.mu.Lock()
	if a := o.Attempt; a.End == evidence.Never {
		a.End, a.Ending, a.Status, a.Reason = int64(l.now()), ending, status, reason
	}
	l.mu.Unlock()
	l.wake()
}

// Result notes a final result.
func (l *BatchLog) Result(raw []byte) {
	var r async.Result
	_ = json.Unmarshal(raw, &r) // what is no result is seen as one without an id
	l.out.Observe(evidence.Observation{At: int64(l.now()), Result: &evidence.FinalResult{List: sut.BatchResults, ID: r.ID, Status: r.StatusCode, Code: string(r.ErrorCode),
		Message: r.ErrorMessage, Payload: r.Payload, Raw: string(raw)}})
	l.mu.Lock()
	l.results[r.ID]++
	l.mu.Unlock()
	l.wake()
}

// Results counts results.
func (l *BatchLog) Results(ids []string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for id, k := range l.results {
		if evidence.Among(ids, id) {
			n += k
		}
	}
	return n
}

// Tried counts attempts that have ended.
func (l *BatchLog) Tried(ids []string, status int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, o := range l.tries {
		if a := o.Attempt; evidence.Among(ids, a.ID) && a.End != evidence.Never && (status == 0 || a.Status == status) {
			n++
		}
	}
	return n
}

// Flush hands the attempts over.
func (l *BatchLog) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.tries {
		l.out.Observe(*o)
	}
	l.tries = nil
}

// Transport notes every attempt that passes it.
func (l *BatchLog) Transport(inner http.RoundTripper) http.RoundTripper { return noting{l, inner} }

type noting struct {
	log   *BatchLog
	inner http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (n noting) RoundTrip(r *http.Request) (*http.Response, error) {
	headers := map[string][]string{}
	for k, v := range r.Header {
		headers[strings.ToLower(k)] = v
	}
	o := n.log.Begin(r.Header.Get(wire.HeaderID), headers)
	res, err := n.inner.RoundTrip(r)
	if err != nil {
		ending := evidence.BrokenOff
		if r.Context().Err() != nil {
			ending = evidence.Dropped
		}
		n.log.End(o, ending, 0, "")
		return nil, err
	}
	res.Body = &notedBody{ReadCloser: res.Body, end: func(whole bool) {
		ending := evidence.Answered
		if !whole {
			ending = evidence.BrokenOff
		}
		n.log.End(o, ending, res.StatusCode, res.Header.Get(wire.HeaderDroppedReason))
	}}
	return res, nil
}

type notedBody struct {
	io.ReadCloser
	end func(whole bool)
}

// Read implements io.Reader.
func (b *notedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end(err == io.EOF)
	}
	return n, err
}

// Close implements io.Closer.
func (b *notedBody) Close() error {
	b.end(false) // if the end was not read
	return b.ReadCloser.Close()
}

// batchFlags are what all batch processors are started with.
func batchFlags(b sut.Batch) []string {
	return []string{"--transport", "redis-sortedset", "--metrics-endpoint-auth=false", "--metrics-port", "0", "--health-port", "0", "--concurrency", fmt.Sprint(b.Workers), "--prometheus-cache-ttl", "0s"}
}

// LoadBatch reads the configuration of a processor as the program would.
func LoadBatch(c sut.Batch, doc, prometheus string) (asyncconfig.Config, error) {
	var f asyncconfig.Flags
	parser, err := kong.New(&f)
	if err != nil {
		return asyncconfig.Config{}, err
	}
	args := append(batchFlags(c), "--transport-config", doc)
	if prometheus != "" {
		args = append(args, "--prometheus-url", prometheus)
	}
	if c.Policy != "" {
		args = append(args, "--request-merge-policy-config-file", "policy")
	}
	if _, err = parser.Parse(args); err != nil {
		return asyncconfig.Config{}, err
	}
	return asyncconfig.NewLoader(f, func(string) string { return "" }, func(string) ([]byte, error) { return []byte(c.Policy), nil }).Load()
}
