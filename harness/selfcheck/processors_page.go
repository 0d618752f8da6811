package selfcheck

import (
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
)

type page = func([]*dto.MetricFamily) []*dto.MetricFamily

func renamed(from, to string) page {
	return func(fs []*dto.MetricFamily) []*dto.MetricFamily {
		for _, f := range fs {
			name := strings.Replace(f.GetName(), from, to, 1)
			f.Name = &name
		}
		return fs
	}
}

func unlabelled(label string) page {
	return func(fs []*dto.MetricFamily) []*dto.MetricFamily {
		for _, f := range fs {
			for _, m := range f.Metric {
				for _, l := range m.Label {
					if l.GetName() == label {
						empty := ""
						l.Value = &empty
					}
				}
			}
		}
		return fs
	}
}

// each changes the values of one family.
func each(name string, change func(float64) float64) page {
	return func(fs []*dto.MetricFamily) []*dto.MetricFamily {
		for _, f := range fs {
			if f.GetName() != name {
				continue
			}
			for _, m := range f.Metric {
				switch {
				case m.Counter != nil:
					v := change(m.Counter.GetValue())
					m.Counter.Value = &v
				case m.Gauge != nil:
					v := change(m.Gauge.GetValue())
					m.Gauge.Value = &v
				case m.Histogram != nil:
					v := change(m.Histogram.GetSampleSum())
					m.Histogram.SampleSum = &v
				}
			}
		}
		return fs
	}
}

func scaled(name string, by float64) page {
	return each(name, func(v float64) float64 { return v * by })
}

func ones(name string) page { return each(name, func(float64) float64 { return 1 }) }

// added shows the sum of two families of counters in the first.
func added(name, other string) page {
	return func(fs []*dto.MetricFamily) []*dto.MetricFamily {
		more := map[string]float64{}
		for _, f := range fs {
			for _, m := range f.Metric {
				if f.GetName() == other {
					more[labelled(m)] += m.Counter.GetValue()
				}
			}
		}
		for _, f := range fs {
			for _, m := range f.Metric {
				if f.GetName() == name {
					v := m.Counter.GetValue() + more[labelled(m)]
					m.Counter.Value = &v
				}
			}
		}
		return fs
	}
}

// copied shows the counters of one family, without a label, in the place of another.
func copied(name, from, without string) page {
	return func(fs []*dto.MetricFamily) []*dto.MetricFamily {
		for _, f := range slices.Clone(fs) {
			if f.GetName() != from {
				continue
			}
			sums, kind := map[string]*dto.Metric{}, f.GetType()
			out := &dto.MetricFamily{Name: &name, Type: &kind}
			for _, m := range f.Metric {
				c := &dto.Metric{Counter: &dto.Counter{}}
				for _, l := range m.Label {
					if l.GetName() != without {
						c.Label = append(c.Label, l)
					}
				}
				if sums[labelled(c)] == nil {
					sums[labelled(c)] = c
					out.Metric = append(out.Metric, c)
				}
				v := sums[labelled(c)].Counter.GetValue() + m.Counter.GetValue()
				sums[labelled(c)].Counter.Value = &v
			}
			fs = append(slices.DeleteFunc(fs, func(f *dto.MetricFamily) bool { return f.GetName() == name }), out)
		}
		return fs
	}
}

func labelled(m *dto.Metric) string {
	var out []string
	for _, l := range m.Label {
		out = append(out, l.GetName()+"="+l.GetValue())
	}
	slices.Sort(out)
	return strings.Join(out, ",")
}

// nonZero leaves out what is 0.
func nonZero(name string) page {
	return func(fs []*dto.MetricFamily) []*dto.MetricFamily {
		for _, f := range fs {
			if f.GetName() == name {
				f.Metric = slices.DeleteFunc(f.Metric, func(m *dto.Metric) bool { return m.Counter.GetValue() == 0 })
			}
		}
		return slices.DeleteFunc(fs, func(f *dto.MetricFamily) bool { return len(f.Metric) == 0 })
	}
}

// dropped leaves a family out.
func dropped(name string) page {
	return func(fs []*dto.MetricFamily) []*dto.MetricFamily {
		return slices.DeleteFunc(fs, func(f *dto.MetricFamily) bool { return f.GetName() == name })
	}
}
