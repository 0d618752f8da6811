package asyncproc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/asyncconfig"
	"github.com/llm-weir/weir/reference/redisq"
)

// sources asks for what gates read.
type sources struct {
	prometheus string // base URL
	http       *http.Client
	dial       func(address string) *redis.Client

	mu      sync.Mutex
	list    []asyncconfig.Source
	clients map[string]*redis.Client // by address: gates with one address share a pool (AP-GATE-06)
}

// pageTimeout bounds one fetch, pageSize its length in bytes.
const (
	pageTimeout = 10 * time.Second
	pageSize    = 16 << 20
)

func newSources(prometheus string, list []asyncconfig.Source) *sources {
	return &sources{prometheus: strings.TrimSuffix(prometheus, "/"), http: &http.Client{Timeout: pageTimeout}, dial: redisq.AddressClient,
		list: list, clients: map[string]*redis.Client{}}
}

// set replaces the list; former indexes keep their meaning.
func (s *sources) set(list []asyncconfig.Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = list
}

func (s *sources) at(i async.SourceID) asyncconfig.Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list[i]
}

// client is the one client of an address.
func (s *sources) client(address string) *redis.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clients[address]
	if c == nil {
		c = s.dial(address)
		s.clients[address] = c
	}
	return c
}

func (s *sources) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		_ = c.Close() // nothing can be done about it
	}
}

// read asks one source. An error means that it did not answer; a source that has no value is Empty.
func (s *sources) read(ctx context.Context, i async.SourceID) (async.Status, float64, error) {
	switch src := s.at(i); src.Kind {
	case asyncconfig.RedisKey:
		text, err := s.client(src.Address).Get(ctx, src.Key).Result()
		if errors.Is(err, redis.Nil) {
			return async.Empty, 0, nil
		}
		if err != nil {
			return async.NoAnswer, 0, fmt.Errorf("budget %s at %s: %w", src.Key, src.Address, err)
		}
		return budget(text)
	case asyncconfig.PromQL:
		return s.query(ctx, src.Query)
	default:
		return s.page(ctx, src)
	}
}

// budget reads the text under a budget key; what cannot be read is no budget (AP-GATE-07).
func budget(text string) (async.Status, float64, error) {
	if v, err := strconv.ParseFloat(strings.TrimSpace(text), 64); err == nil && !math.IsNaN(v) {
		return async.Sample, v, nil
	}
	return async.Empty, 0, nil
}

// get fetches a body and its status.
func (s *sources) get(ctx context.Context, url string) ([]byte, int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, err
	}
	res, err := s.http.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, pageSize))
	return body, res.StatusCode, err
}

// query evaluates an instant query; the answer must be a vector, of which the first sample counts (spec/async-processor.md §4.2).
func (s *sources) query(ctx context.Context, promql string) (async.Status, float64, error) {
	fail := func(err error) (async.Status, float64, error) {
		return async.NoAnswer, 0, fmt.Errorf("query %q: %w", promql, err)
	}
	body, status, err := s.get(ctx, s.prometheus+"/api/v1/query?query="+url.QueryEscape(promql))
	if err != nil {
		return fail(err)
	}
	var answer struct {
		Status string
		Error  string
		Data   struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fail(fmt.Errorf("status %d: %w", status, err))
	}
	if status != http.StatusOK || answer.Status != "success" || answer.Data.ResultType != "vector" {
		return fail(fmt.Errorf("status %d, %s %s: a vector is needed", status, answer.Data.ResultType, answer.Error))
	}
	var vector []struct{ Value [2]any }
	if err := json.Unmarshal(answer.Data.Result, &vector); err != nil {
		return fail(err)
	}
	if len(vector) == 0 {
		return async.Empty, 0, nil
	}
	text, _ := vector[0].Value[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fail(err)
	}
	return async.Sample, v, nil
}

// page reads one metric of a page; of several series that match, the first counts.
func (s *sources) page(ctx context.Context, src asyncconfig.Source) (async.Status, float64, error) {
	fail := func(err error) (async.Status, float64, error) {
		return async.NoAnswer, 0, fmt.Errorf("page %s: %w", src.URL, err)
	}
	body, status, err := s.get(ctx, src.URL)
	if err != nil {
		return fail(err)
	}
	if status != http.StatusOK {
		return fail(fmt.Errorf("status %d", status))
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(body)))
	if err != nil {
		return fail(err)
	}
	var want map[string]string
	if err := json.Unmarshal([]byte(src.Labels), &want); err != nil {
		return fail(err)
	}
	for _, m := range families[src.Metric].GetMetric() {
		if matches(m, want) {
			return async.Sample, m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue(), nil
		}
	}
	return async.Empty, 0, nil
}

func matches(m *dto.Metric, want map[string]string) bool {
	found := 0
	for _, l := range m.GetLabel() {
		if v, ok := want[l.GetName()]; ok {
			if v != l.GetValue() {
				return false
			}
			found++
		}
	}
	return found == len(want)
}
