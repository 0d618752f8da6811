package checks_test

import (
	"github.com/llm-weir/weir/harness/evidence"
)

// hist builds a history by hand; instants are milliseconds since the scenario's epoch.
type hist struct {
	r    evidence.Run
	also []evidence.Run // further scenarios of the run
}

func history() *hist { return &hist{r: evidence.Run{Scenario: "hand-built"}} }

func at(ms int) int64 { return int64(ms) * 1e6 }

func (h *hist) client(id string, sent, end int, outcome string, status int, reason string) *hist {
	c := evidence.Client{Scenario: h.r.Scenario, ID: id, Intended: at(sent), Sent: at(sent), Headers: evidence.Never, FirstToken: evidence.Never,
		LastToken: evidence.Never, End: at(end), Outcome: outcome, Status: status, Reason: reason, BodySHA256: "body-" + id, RequestBytes: 10}
	if outcome == evidence.Unfinished {
		c.End = evidence.Never
	}
	h.r.Clients = append(h.r.Clients, c)
	return h
}

func (h *hist) backend(id, endpoint string, arrival, end int, ending string) *hist {
	b := evidence.Backend{Scenario: h.r.Scenario, ID: id, Endpoint: endpoint, Arrival: at(arrival), Released: evidence.Never, FirstToken: evidence.Never,
		End: at(end), Ending: ending, BodySHA256: "body-" + id, JSONSHA256: "json-" + id, Bytes: 10}
	if ending == evidence.Running {
		b.End = evidence.Never
	}
	h.r.Backends = append(h.r.Backends, b)
	h.r.Sort()
	return h
}

// served is a request that completes at model server a.
func (h *hist) served(id string, sent, arrival, end int) *hist {
	return h.client(id, sent, end, evidence.Completed, 200, "").backend(id, "a", arrival, end, evidence.Finished)
}

func (h *hist) refused(id string, sent, end, status int, reason string) *hist {
	return h.client(id, sent, end, evidence.Refused, status, reason)
}

// left is a client that disconnects while its request has reached nobody.
func (h *hist) left(id string, sent, end int) *hist {
	return h.client(id, sent, end, evidence.ClientCancelled, 0, "")
}

func (h *hist) step(mark string, start, end int) *hist {
	h.r.Steps = append(h.r.Steps, evidence.Step{Scenario: h.r.Scenario, Index: len(h.r.Steps), Op: "quiet", Mark: mark, Start: at(start), End: at(end), OK: true})
	return h
}

func (h *hist) broken(mark string) *hist {
	for i := range h.r.Steps {
		if h.r.Steps[i].Mark == mark {
			h.r.Steps[i].OK, h.r.Steps[i].Detail = false, "the barrier was not reached"
		}
	}
	return h
}

func (h *hist) without(mark string) *hist {
	var kept []evidence.Step
	for _, s := range h.r.Steps {
		if s.Mark != mark {
			kept = append(kept, s)
		}
	}
	h.r.Steps = kept
	return h
}

// c and b change every record of a request.
func (h *hist) c(id string, f func(*evidence.Client)) *hist {
	for i := range h.r.Clients {
		if h.r.Clients[i].ID == id {
			f(&h.r.Clients[i])
		}
	}
	h.r.Sort()
	return h
}

func (h *hist) b(id string, f func(*evidence.Backend)) *hist {
	for i := range h.r.Backends {
		if h.r.Backends[i].ID == id {
			f(&h.r.Backends[i])
		}
	}
	h.r.Sort()
	return h
}

// unseen removes what the model servers recorded of a request, unsent what its client did.
func (h *hist) unseen(id string) *hist {
	var kept []evidence.Backend
	for _, b := range h.r.Backends {
		if b.ID != id {
			kept = append(kept, b)
		}
	}
	h.r.Backends = kept
	return h
}

func (h *hist) unsent(id string) *hist {
	var kept []evidence.Client
	for _, c := range h.r.Clients {
		if c.ID != id {
			kept = append(kept, c)
		}
	}
	h.r.Clients = kept
	return h
}

func (h *hist) sample(mark, name string, value float64, labels map[string]string) *hist {
	h.r.Samples = append(h.r.Samples, evidence.Sample{Scenario: h.r.Scenario, Mark: mark, Source: "router", Name: name, Value: value, Labels: labels})
	return h
}

func (h *hist) process(name string, started bool, exit int, text string) *hist {
	h.r.Processes = append(h.r.Processes, evidence.Process{Scenario: h.r.Scenario, Case: name, Started: started, ExitCode: exit, Text: text, Duration: at(100)})
	return h
}

func arrivesNever(b *evidence.Backend) { b.Arrival = evidence.Never }
func endsNever(c *evidence.Client)     { c.End = evidence.Never }
func sentNever(c *evidence.Client)     { c.Sent = evidence.Never }
func arrivesAt(ms int) func(*evidence.Backend) {
	return func(b *evidence.Backend) { b.Arrival = at(ms) }
}

// queue is one slot, taken by plug1 until 1000, with a1 b1 a2 waiting behind it; three releases let them in one by one.
func queue() *hist {
	return history().served("plug1", 0, 1, 1000).served("a1", 50, 1001, 1100).served("b1", 100, 1101, 1200).served("a2", 150, 1201, 1300).
		step("queued", 200, 500).step("freed", 1000, 1000).
		step("one", 1000, 1050).step("one", 1100, 1150).step("one", 1200, 1250)
}
