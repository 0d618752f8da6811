package scrape

import (
	"fmt"
	"io"
	"math"

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
		return picker.Load{}, nil, fmt.Errorf("metrics page: %w", err)
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
	return l, warnings, nil
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
