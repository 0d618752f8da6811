package processor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/evidence"
	"github.com/llm-weir/weir/harness/prom"
	"github.com/llm-weir/weir/harness/sut"
)

// watch lets a Prometheus read a processor's metrics from now on.
func (r *rig) watch(p *program) error {
	if r.watcher != nil {
		return errors.New("one processor is watched already")
	}
	var err error
	r.watcher, err = prom.Serve(prom.Config{Interval: 200 * time.Millisecond, Addr: "127.0.0.1:0",
		Targets: []prom.Target{{Job: "processor", URL: fmt.Sprintf("http://127.0.0.1:%d/metrics", p.metrics)}}})
	return err
}

// ask asks for queries until each has a value, and records how many series each gave in the end.
func (r *rig) ask(ctx context.Context, s sut.AsyncStep, rec *evidence.Step) error {
	if r.watcher == nil {
		return errors.New("nobody watches the processor's metrics")
	}
	found := map[string]int{}
	r.barrier(ctx, s, rec, func() bool {
		all := true
		for name, query := range s.Keys {
			if found[name] == 0 {
				found[name] = r.series(ctx, query)
			}
			all = all && found[name] > 0
		}
		return all
	}, func() string {
		var none []string
		for name := range s.Keys {
			if found[name] == 0 {
				none = append(none, name)
			}
		}
		slices.Sort(none)
		return "no value of " + strings.Join(none, ", ")
	})
	rec.OK = true // how many series there are is evidence
	for name, n := range found {
		r.note(evidence.Observation{At: int64(r.clock.Now()), Mark: s.Mark, Key: &evidence.BrokerKey{Name: ":promql " + name, Type: "fact", Size: int64(n), TTL: evidence.Never, Value: s.Keys[name]}})
	}
	return nil
}

// series counts the finite values that a query gives.
func (r *rig) series(ctx context.Context, query string) int {
	_, body, err := get(ctx, r.watcher.URL()+"/api/v1/query?query="+url.QueryEscape(query))
	if err != nil {
		return 0
	}
	var answer struct {
		Data struct {
			Result []struct {
				Value []any `json:"value"`
			} `json:"result"`
		} `json:"data"`
	}
	if json.Unmarshal([]byte(body), &answer) != nil {
		return 0
	}
	n := 0
	for _, x := range answer.Data.Result {
		if len(x.Value) == 2 && x.Value[1] != "NaN" {
			n++
		}
	}
	return n
}
