package picker

import "github.com/llm-weir/weir/reference/flowcontrol"

// report keeps what a replica says in place of what it said before, unless that was later.
func (m *model) report(r Report) {
	if r.At > m.now {
		r.At = m.now
	}
	if !m.counts(r) {
		return
	}
	var others []Report
	for _, o := range m.reports {
		if o.Replica != r.Replica {
			others = append(others, o)
		} else if o.At > r.At {
			return
		}
	}
	m.reports = append(others, r)
}

// counts tells whether a report is young enough.
func (m *model) counts(r Report) bool {
	d := m.cfg.Flow.Detector
	return d.Kind == flowcontrol.Concurrency && d.ForeignLimit > 0 && m.now-r.At <= d.ForeignLimit
}

// elsewhere is what the others have in flight on an endpoint, abroad what they have anywhere.
func (m *model) elsewhere(e *modelEndpoint) (requests int, tokens int64) {
	for _, r := range m.reports {
		for _, l := range r.Loads {
			if m.counts(r) && l.Endpoint == e.ID {
				requests += l.Requests
				tokens += l.Tokens
			}
		}
	}
	return requests, tokens
}

func (m *model) abroad() (n int) {
	for _, r := range m.reports {
		for _, l := range r.Loads {
			if m.counts(r) {
				n += l.Requests
			}
		}
	}
	return n
}
