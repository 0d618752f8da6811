package scrape

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/picker"
)

// used are the families that Parse reads.
var used = []string{wire.VLLMWaiting, wire.VLLMRunning, wire.VLLMKVUsage, wire.VLLMLoRAInfo}

// Parse reads a page in the Prometheus text format. Of several series of a family the waiting and running requests are added up and
// the highest KV use counts. Warnings name families that are there but unusable: without a `# TYPE` of gauge or counter a number
// has no meaning, and reading it as 0 would make a full server look idle (spec/endpoint-picker.md §4.4).
//
// A page has some 500 lines of which these families are 10, and one of each server is read 20 times a second: only their lines go
// through the parser, which would take 1.5 ms for all of them.
func Parse(page []byte) (picker.Load, []string, error) {
	lines, err := relevant(page)
	if err != nil {
		return picker.Load{}, nil, err
	}
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(lines))
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

// relevant are the lines of the families that are used, with the comments that give their types. Of the other lines only the begin
// is looked at: one that can be no line of the format makes the page none.
func relevant(page []byte) ([]byte, error) {
	var out []byte
	number := 0
	for line := range bytes.Lines(page) {
		number++
		text := bytes.TrimLeft(line, " \t")
		switch c := text[:min(1, len(text))]; {
		case len(c) == 0 || c[0] == '\n' || c[0] == '\r':
			continue
		case c[0] == '#':
			kind, ok := bytes.CutPrefix(bytes.TrimLeft(text[1:], " \t"), []byte("TYPE"))
			if ok && isUsed(bytes.TrimLeft(kind, " \t")) {
				out = append(out, line...)
			}
		case isUsed(text):
			out = append(out, line...)
		case c[0] != '_' && c[0] != ':' && c[0] != '{' && (c[0]|0x20 < 'a' || c[0]|0x20 > 'z'):
			return nil, fmt.Errorf("%w: line %d begins with %q", ErrPage, number, c)
		}
	}
	return out, nil
}

// isUsed tells whether a text begins with the name of a family that is used.
func isUsed(text []byte) bool {
	for _, name := range used {
		if len(text) > len(name) && string(text[:len(name)]) == name {
			switch text[len(name)] {
			case '{', ' ', '\t':
				return true
			}
		}
	}
	return false
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
