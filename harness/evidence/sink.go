package evidence

// Sink takes the records of one scenario as they are observed. Implementations are safe for concurrent use.
type Sink interface {
	Client(Client)
	Backend(Backend)
	Decision(Decision)
	Exchange(Exchange)
	Sample(Sample)
	Step(Step)
	Process(Process)
	Observe(Observation)
	// File keeps a text (rendered configuration, log, version) under env/<scenario>/name.
	File(name string, content []byte)
}
