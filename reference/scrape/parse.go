package scrape

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/picker"
)

// Parse reads a page in the Prometheus text format. Of several series of a family the waiting and running requests are added up and
// the highest KV use counts. Warnings name families that are there but unusable: without a `# TYPE` of gauge or counter a number
// has no meaning, and reading it as 0 would make a full server look idle (spec/endpoint-picker.md §4.4).
func Parse(r io.Reader) (picker.Load, []string, error) {
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(r)
	if err != nil {
		return picker.Load{}, nil, fmt.Errorf("%w: %w", ErrPage, err)
	}
	var warnings []string
	read := func(name string, fold func(a, b float64) float64) (float64, bool) {
		f := families[name]
		if f == nil {
			return 0, false
		}
		v, ok, why := value(f, fold)
		if !ok {
			warnings = append(warnings, name+": "+why)
		}
		return v, ok
	}
	add := func(a, b float64) float64 { return a + b }
	l := picker.Load{OK: true}
	l.Waiting, l.HasWaiting = read(wire.VLLMWaiting, add)
	l.Running, _ = read(wire.VLLMRunning, add)
	l.KV, l.HasKV = read(wire.VLLMKVUsage, math.Max)
	l.Adapters, l.MaxAdapters = adapters(families[wire.VLLMLoRAInfo])
	return l, warnings, nil
}

// The labels of wire.VLLMLoRAInfo.
const (
	labelRunning = "running_lora_adapters"
	labelWaiting = "waiting_lora_adapters"
	labelMax     = "max_lora"
)

// adapterLimit bounds the adapters taken from one page; a server has some tens.
const adapterLimit = 1024

// adapters reads the adapters that run or wait, running ones first, each once. vLLM keeps a series for each combination it ever had;
// the value is the time at which it was set, and the latest counts (spec/vllm.md §2.7).
func adapters(f *dto.MetricFamily) (names []string, slots int) {
	var latest *dto.Metric
	at := math.Inf(-1)
	for _, m := range f.GetMetric() {
		v := m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
		if latest == nil || v > at {
			latest, at = m, v
		}
	}
	text := map[string]string{}
	for _, l := range latest.GetLabel() {
		text[l.GetName()] = l.GetValue()
	}
	seen := map[string]bool{}
	for _, list := range []string{text[labelRunning], text[labelWaiting]} {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.TrimSpace(name); name != "" && !seen[name] && len(names) < adapterLimit {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	if slots, _ = strconv.Atoi(strings.TrimSpace(text[labelMax])); slots < 0 {
		slots = 0
	}
	return names, slots
}

func value(f *dto.MetricFamily, fold func(a, b float64) float64) (v float64, ok bool, why string) {
	for i, m := range f.GetMetric() {
		var x float64
		switch f.GetType() {
		case dto.MetricType_GAUGE:
			x = m.GetGauge().GetValue()
		case dto.MetricType_COUNTER:
			x = m.GetCounter().GetValue()
		default:
			return 0, false, "its type is " + f.GetType().String() + ", gauge or counter is needed"
		}
		if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
			return 0, false, fmt.Sprintf("its value %v is no load", x)
		}
		if i == 0 {
			v = x
		} else {
			v = fold(v, x)
		}
	}
	return v, len(f.GetMetric()) > 0, "it has no samples"
}
