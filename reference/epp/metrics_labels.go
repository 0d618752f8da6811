package epp

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/picker"
)

// Labels tell the series of a request apart, as the request itself has them.
type Labels struct {
	Model      string // as the client asked
	Target     string // as served
	FairnessID string
	Priority   int // as requested
}

// LabelsOf are the labels of a request whose model was not rewritten.
func LabelsOf(r *picker.Request) Labels {
	return Labels{Model: r.Model, Target: r.Model, FairnessID: r.FairnessID, Priority: r.Priority}
}

// The limits of what requests can make of a metrics page. Values come from clients, so each has a cap (MET-2, FC-MET-13): beyond it a
// value reads "other". Caps on single labels do not bound their combinations, hence the second one; and the histograms of a combination
// are 57 KB of text, so that those of 1000 tenants would make a page of 57 MB: histograms keep apart the first combinations only,
// gauges and counters, 1 KB each, all of them.
const (
	valueCap     = 1000 // distinct model names, and distinct fairness ids
	combinations = 1010 // of model, target, fairness id and priority
	overflow     = 20   // further ones with the fairness id "other"
	detailCap    = 12   // combinations with histograms of their own
	sharedCap    = 2    // histograms with the fairness id "other", by model
	labelBytes   = 128  // longest value
	otherValue   = "other"
)

// labelBook knows which label values are in use.
type labelBook struct {
	series   map[Labels]*series
	flows    map[string]int // fairness ids by the number of series
	models   map[string]int
	pinned   map[string]bool // model names that are never "other"
	byModel  map[[2]string]int
	detailed int
	shared   map[Labels]bool
}

func newLabelBook() labelBook {
	return labelBook{
		series: map[Labels]*series{}, flows: map[string]int{}, models: map[string]int{}, pinned: map[string]bool{}, byModel: map[[2]string]int{},
		shared: map[Labels]bool{},
	}
}

// series is everything published about one combination of labels; its parts appear when there is something to publish.
type series struct {
	labels    Labels // as published
	priority  string
	histogram Labels // as published with histograms
	detailed  bool   // the histograms are its own
	inUse     int    // requests queued or running
	used      bool   // since the last sweep
	idleSince time.Duration

	flowHandles
	requestHandles
}

// Pin keeps apart the metrics of exactly these models whatever else is asked for; configured names, so they are few.
func (m *Metrics) Pin(models []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.pinned)
	for _, name := range models {
		m.pinned[name] = true
	}
}

// of finds or makes the series of a request. The caller holds mu.
func (m *Metrics) of(l Labels) *series {
	s := m.series[l]
	if s == nil {
		l = m.bounded(l)
		if s = m.series[l]; s == nil {
			s = m.begin(l)
		}
	}
	s.used = true
	return s
}

func (b *labelBook) bounded(l Labels) Labels {
	l.FairnessID = admit(b.flows, l.FairnessID, l.FairnessID == wire.DefaultFlow)
	l.Model, l.Target = admit(b.models, l.Model, b.pinned[l.Model]), admit(b.models, l.Target, b.pinned[l.Target])
	if b.series[l] != nil || len(b.series) < combinations {
		return l
	}
	l.FairnessID = otherValue
	if b.series[l] != nil || len(b.series) < combinations+overflow {
		return l
	}
	for _, v := range []*string{&l.Model, &l.Target} {
		if !b.pinned[*v] {
			*v = otherValue
		}
	}
	return l
}

// admit returns v, or "other" for one too many and for what is no proper label value: the library panics on bytes that are no UTF-8,
// and headers may carry any.
func admit(have map[string]int, v string, pinned bool) string {
	switch {
	case !proper(v):
		return otherValue
	case pinned || have[v] > 0 || len(have) < valueCap:
		return v
	}
	return otherValue
}

func proper(v string) bool { return len(v) <= labelBytes && utf8.ValidString(v) }

func (b *labelBook) begin(l Labels) *series {
	s := &series{labels: l, priority: strconv.Itoa(l.Priority), histogram: l}
	if b.detailed < detailCap {
		b.detailed++
		s.detailed = true
	} else {
		s.histogram.FairnessID = otherValue
		if !b.shared[s.histogram] && len(b.shared) >= sharedCap {
			s.histogram.Model, s.histogram.Target = otherValue, otherValue
		}
		b.shared[s.histogram] = true
	}
	b.series[l] = s
	b.flows[l.FairnessID]++
	b.models[l.Model]++
	b.models[l.Target]++
	b.byModel[[2]string{l.Model, l.Target}]++
	return s
}

// end forgets a series and tells whether it was the last of its model and target.
func (b *labelBook) end(s *series) (lastOfModel bool) {
	l := s.labels
	delete(b.series, l)
	if s.detailed {
		b.detailed--
	}
	release(b.flows, l.FairnessID)
	release(b.models, l.Model)
	release(b.models, l.Target)
	pair := [2]string{l.Model, l.Target}
	if b.byModel[pair]--; b.byModel[pair] == 0 {
		delete(b.byModel, pair)
		return true
	}
	return false
}

func release(m map[string]int, v string) {
	if m[v]--; m[v] <= 0 {
		delete(m, v)
	}
}

// Sweep ends the series of flows that the machine has collected, and of labels that came with refused requests only. hasFlow is asked
// on the caller's goroutine. A series that was used since it would have been collected stays.
func (m *Metrics) Sweep(now time.Duration, hasFlow func(priority int, fairnessID string) bool) {
	if m.flow.FlowIdle <= 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.series {
		if s.used || s.inUse > 0 {
			s.used, s.idleSince = false, now
			continue
		}
		l := s.labels
		// A request whose priority has no band waits in band 0.
		if now-s.idleSince < m.flow.FlowIdle || hasFlow(l.Priority, l.FairnessID) || hasFlow(0, l.FairnessID) {
			continue
		}
		last := m.end(s)
		m.dropFlow(s)
		m.dropRequests(s, last)
		if m.flows[l.FairnessID] == 0 {
			m.dropInFlight(l.FairnessID)
		}
	}
}

func byModel(model, target string) prometheus.Labels {
	return prometheus.Labels{"model_name": model, "target_model_name": target}
}
