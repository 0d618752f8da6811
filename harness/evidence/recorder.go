package evidence

import "sync"

// Recorder is the Sink of one scenario: it keeps everything in memory until the scenario is over and the writer seals it.
type Recorder struct {
	mu    sync.Mutex
	run   Run
	files map[string][]byte
}

// NewRecorder starts the record of one scenario.
func NewRecorder(scenario string) *Recorder {
	return &Recorder{run: Run{Scenario: scenario}, files: map[string][]byte{}}
}

// Client records what a client saw.
func (r *Recorder) Client(c Client) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.Scenario = r.run.Scenario
	r.run.Clients = append(r.run.Clients, c)
}

// Backend records what a model server saw.
func (r *Recorder) Backend(b Backend) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.Scenario = r.run.Scenario
	r.run.Backends = append(r.run.Backends, b)
}

// Decision records a white-box decision.
func (r *Recorder) Decision(d Decision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d.Scenario = r.run.Scenario
	r.run.Decisions = append(r.run.Decisions, d)
}

// Exchange records what the data plane saw.
func (r *Recorder) Exchange(x Exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x.Scenario = r.run.Scenario
	r.run.Exchanges = append(r.run.Exchanges, x)
}

// Sample records a metric value.
func (r *Recorder) Sample(s Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Scenario = r.run.Scenario
	r.run.Samples = append(r.run.Samples, s)
}

// Step records an executed step.
func (r *Recorder) Step(s Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Scenario = r.run.Scenario
	s.Index = len(r.run.Steps)
	r.run.Steps = append(r.run.Steps, s)
}

// Process records a start attempt.
func (r *Recorder) Process(p Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.Scenario = r.run.Scenario
	r.run.Processes = append(r.run.Processes, p)
}

// Observe records what was seen around a processor.
func (r *Recorder) Observe(o Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Scenario = r.run.Scenario
	r.run.Observations = append(r.run.Observations, o)
}

// File keeps a text.
func (r *Recorder) File(name string, content []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files[name] = append([]byte(nil), content...)
}

// Run is a sorted copy of what has been recorded so far.
func (r *Recorder) Run() Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.run
	c.Clients = append([]Client(nil), c.Clients...)
	c.Backends = append([]Backend(nil), c.Backends...)
	c.Decisions = append([]Decision(nil), c.Decisions...)
	c.Exchanges = append([]Exchange(nil), c.Exchanges...)
	c.Samples = append([]Sample(nil), c.Samples...)
	c.Steps = append([]Step(nil), c.Steps...)
	c.Processes = append([]Process(nil), c.Processes...)
	c.Observations = append([]Observation(nil), c.Observations...)
	c.Sort()
	return c
}
