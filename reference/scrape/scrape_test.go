package scrape

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/reference/picker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const page = `# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{model_name="m"} 3
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 2
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{model_name="m"} 0.5
`

func TestParse(t *testing.T) {
	rows := []struct {
		why, page string
		want      picker.Load
		warnings  int
		fails     bool
	}{
		{"a vLLM page", page, picker.Load{Waiting: 3, Running: 2, KV: 0.5, HasWaiting: true, HasKV: true, OK: true}, 0, false},
		{"engines add up, the fullest cache counts", page + "vllm:kv_cache_usage_perc{model_name=\"n\"} 0.75\n", picker.Load{Waiting: 3, Running: 2, KV: 0.75, HasWaiting: true, HasKV: true, OK: true}, 0, false},
		{"an untyped family is missing, not 0", "vllm:num_requests_waiting 9\n# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc 0.1\n", picker.Load{KV: 0.1, HasKV: true, OK: true}, 1, false},
		{"a counter will do", "# TYPE vllm:num_requests_waiting counter\nvllm:num_requests_waiting 9\n", picker.Load{Waiting: 9, HasWaiting: true, OK: true}, 0, false},
		{"NaN is no load", "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting NaN\n", picker.Load{OK: true}, 1, false},
		{"another server's page", "# TYPE up gauge\nup 1\n", picker.Load{OK: true}, 0, false},
		{"adapters, the latest series, running first, each once", "# TYPE vllm:lora_requests_info gauge\nvllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"old\",waiting_lora_adapters=\"\"} 5\n" +
			"vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"a, b\",waiting_lora_adapters=\"c,a\"} 7.5e9\n", picker.Load{Adapters: []string{"a", "b", "c"}, MaxAdapters: 4, OK: true}, 0, false},
		{"no adapters at work", "# TYPE vllm:lora_requests_info gauge\nvllm:lora_requests_info{max_lora=\"x\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"} 1\n", picker.Load{OK: true}, 0, false},
		{"families whose names begin alike", "# TYPE vllm:num_requests_waiting_by_reason gauge\nvllm:num_requests_waiting_by_reason{reason=\"capacity\"} 7\nvllm:num_requests_waitings 8\n" + page,
			picker.Load{Waiting: 3, Running: 2, KV: 0.5, HasWaiting: true, HasKV: true, OK: true}, 0, false},
		{"blanks before a name, and a comment that is none of its type", "\t #  TYPE  vllm:num_requests_waiting gauge\n#TYPE\n# vllm:num_requests_waiting 9\n\r\n  vllm:num_requests_waiting\t3\n", picker.Load{Waiting: 3, HasWaiting: true, OK: true}, 0, false},
		{"a broken family that nobody uses", page + "vllm:other{ 1 2 3 4\n", picker.Load{Waiting: 3, Running: 2, KV: 0.5, HasWaiting: true, HasKV: true, OK: true}, 0, false},
		{"a broken family that is used", page + "vllm:num_requests_running{ 1 2 3 4\n", picker.Load{}, 0, true},
		{"a page that breaks off", page[:len(page)-1], picker.Load{}, 0, true},
		{"an empty page", "", picker.Load{OK: true}, 0, false},
		{"no page at all", "<html>", picker.Load{}, 0, true},
	}
	for _, r := range rows {
		got, warnings, err := Parse([]byte(r.page))
		if !reflect.DeepEqual(got, r.want) || len(warnings) != r.warnings || (err != nil) != r.fails {
			t.Errorf("%s: %+v %v %v", r.why, got, warnings, err)
		}
	}
}

func TestPolling(t *testing.T) {
	var mu sync.Mutex
	body, status := page, http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer srv.Close()
	set := func(b string, s int) { mu.Lock(); body, status = b, s; mu.Unlock() }
	c := clock.NewReal()
	got := make(chan picker.Load)
	done := make(chan struct{})
	var unreachable, unreadable, polls int // by the one goroutine of the one target
	s := New(Config{Interval: time.Millisecond, BodyLimit: 1000, Clock: c, Logger: slog.New(slog.DiscardHandler), OnPoll: func(took time.Duration, err error) {
		polls++
		switch {
		case took < 0:
			t.Error(took)
		case errors.Is(err, ErrPage):
			unreadable++
		case err != nil:
			unreachable++
		}
	}}, func(id picker.EndpointID, l picker.Load) {
		if id != 7 {
			t.Errorf("id %d", id)
		}
		select {
		case got <- l:
		case <-done:
		}
	})
	target := []Target{{ID: 7, URL: srv.URL}}
	s.Set(target)
	s.Set(target) // the same target is polled once
	first := <-got
	if !first.OK || first.Waiting != 3 || first.At > c.Now() {
		t.Errorf("%+v", first)
	}
	until := func(why string, ok func(picker.Load) bool) {
		t.Helper()
		for range 1000 {
			if ok(<-got) {
				return
			}
		}
		t.Errorf("%s: not seen", why)
	}
	set("", http.StatusInternalServerError)
	until("an error status fails the scrape", func(l picker.Load) bool { return !l.OK && !l.HasWaiting })
	set(page+strings.Repeat("# x\n", 1000), http.StatusOK)
	set(page, http.StatusOK)
	until("and it recovers", func(l picker.Load) bool { return l.OK && l.HasWaiting })
	set(page+strings.Repeat("# x\n", 1000), http.StatusOK)
	until("a page above the limit fails", func(l picker.Load) bool { return !l.OK })
	if second := <-got; second.At <= first.At {
		t.Error("time went back")
	}
	close(done)
	s.Close()
	s.Close()
	if unreachable == 0 || unreadable == 0 || polls <= unreachable+unreadable {
		t.Errorf("%d polls, %d failed, %d unreadable", polls, unreachable, unreadable)
	}
}

// TestParseLooksAtItsOwnLines: the lines of other families change nothing, wherever they stand.
func TestParseLooksAtItsOwnLines(t *testing.T) {
	want, _, err := Parse([]byte(page))
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := Parse(long())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v, want %+v", got, err, want)
	}
}

// long is a page as long as vLLM's.
func long() []byte {
	var b strings.Builder
	for i, line := range strings.SplitAfter(page, "\n") {
		b.WriteString(line)
		if strings.HasPrefix(line, "#") {
			continue // a type stands above its series
		}
		fmt.Fprintf(&b, "# HELP vllm:h%d_seconds Histogram of a latency in seconds.\n# TYPE vllm:h%d_seconds histogram\n", i, i)
		for le := range 120 {
			fmt.Fprintf(&b, "vllm:h%d_seconds_bucket{model_name=\"m\",engine=\"0\",le=\"%d.0\"} 0.0\n", i, le)
		}
		fmt.Fprintf(&b, "vllm:h%d_seconds_bucket{model_name=\"m\",engine=\"0\",le=\"+Inf\"} 0.0\nvllm:h%d_seconds_sum 0\nvllm:h%d_seconds_count 0\n", i, i, i)
	}
	return []byte(b.String())
}

func BenchmarkParse(b *testing.B) {
	p := long()
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Parse(p); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(page))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, _, err := Parse(b)
		if err != nil && l.OK {
			t.Error("an error with a load")
		}
		if l.Waiting < 0 || l.KV < 0 || l.KV != l.KV {
			t.Errorf("%+v", l)
		}
	})
}
