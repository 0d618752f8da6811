package evidence

import "sort"

// Run is the evidence of one scenario.
type Run struct {
	Scenario     string
	Clients      []Client
	Backends     []Backend // by arrival
	Decisions    []Decision
	Exchanges    []Exchange // by id
	Samples      []Sample
	Steps        []Step // by index
	Processes    []Process
	Observations []Observation // by instant

	// Where a record of each id stands, made on the first look-up; a check asks for thousands. Whoever changes the lists after that
	// changes a copy of the run.
	clientAt  map[string]int
	backendAt map[string]int
}

// ClientByID finds the record of a request.
func (r *Run) ClientByID(id string) (Client, bool) {
	if r.clientAt == nil {
		r.clientAt = make(map[string]int, len(r.Clients))
		for i := len(r.Clients) - 1; i >= 0; i-- {
			r.clientAt[r.Clients[i].ID] = i
		}
	}
	if i, ok := r.clientAt[id]; ok && i < len(r.Clients) && r.Clients[i].ID == id {
		return r.Clients[i], true
	}
	return Client{}, false
}

// BackendByID finds the first arrival of a request at any model server.
func (r *Run) BackendByID(id string) (Backend, bool) {
	if r.backendAt == nil {
		r.backendAt = make(map[string]int, len(r.Backends))
		for i := len(r.Backends) - 1; i >= 0; i-- {
			r.backendAt[r.Backends[i].ID] = i
		}
	}
	if i, ok := r.backendAt[id]; ok && i < len(r.Backends) && r.Backends[i].ID == id {
		return r.Backends[i], true
	}
	return Backend{}, false
}

// ExchangeByID finds what the data plane saw of a request.
func (r *Run) ExchangeByID(id string) (Exchange, bool) {
	i := sort.Search(len(r.Exchanges), func(i int) bool { return r.Exchanges[i].ID >= id })
	if i < len(r.Exchanges) && r.Exchanges[i].ID == id {
		return r.Exchanges[i], true
	}
	return Exchange{}, false
}

// StepByMark finds the last step of that mark.
func (r *Run) StepByMark(mark string) (Step, bool) {
	for i := len(r.Steps) - 1; i >= 0; i-- {
		if r.Steps[i].Mark == mark {
			return r.Steps[i], true
		}
	}
	return Step{}, false
}

// StepsByMark lists all steps of that mark in order.
func (r *Run) StepsByMark(mark string) []Step {
	var out []Step
	for _, s := range r.Steps {
		if s.Mark == mark {
			out = append(out, s)
		}
	}
	return out
}

// InFlight counts the requests inside the model servers at instant t, per endpoint and in all. The model server is the only
// truth about how many run at once (INV-09).
func (r *Run) InFlight(t int64) (perEndpoint map[string]int, total int) {
	perEndpoint = map[string]int{}
	for _, b := range r.Backends {
		if b.Arrival != Never && b.Arrival <= t && (b.End == Never || b.End > t) {
			perEndpoint[b.Endpoint]++
			total++
		}
	}
	return perEndpoint, total
}

// Sort brings the records into their canonical order.
func (r *Run) Sort() {
	sort.SliceStable(r.Clients, func(i, j int) bool {
		a, b := r.Clients[i], r.Clients[j]
		if a.Intended != b.Intended {
			return a.Intended < b.Intended
		}
		return a.ID < b.ID
	})
	sort.SliceStable(r.Backends, func(i, j int) bool {
		a, b := r.Backends[i], r.Backends[j]
		if a.Arrival != b.Arrival {
			return a.Arrival < b.Arrival
		}
		return a.ID < b.ID
	})
	sort.SliceStable(r.Decisions, func(i, j int) bool { return r.Decisions[i].At < r.Decisions[j].At })
	sort.SliceStable(r.Exchanges, func(i, j int) bool { return r.Exchanges[i].ID < r.Exchanges[j].ID })
	sort.SliceStable(r.Observations, func(i, j int) bool { return r.Observations[i].At < r.Observations[j].At })
	sort.SliceStable(r.Steps, func(i, j int) bool { return r.Steps[i].Index < r.Steps[j].Index })
}
