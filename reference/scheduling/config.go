package scheduling

// Config is the one scheduling profile.
type Config struct {
	Scorers      []Scorer
	MaxEndpoints int // length of the fallback list; 0 means 1
	// SubsetFilter honours subset hints (on unless disabled).
	SubsetFilter bool
	Seed         uint64 // for ties between equal totals
}

// Scorer is one weighted scorer.
type Scorer struct {
	Kind   ScorerKind
	Weight float64
}

// ScorerKind is the closed set of scorers.
type ScorerKind uint8

// The scorers; each gives 0..1, higher is better.
const (
	Queue           ScorerKind = iota // min-max inverse of the waiting depth, all equal: 1
	KVUtilization                     // 1 - KV usage
	RunningRequests                   // min-max inverse of running requests
	ActiveRequests                    // min-max inverse of the picker's own in-flight count
	PrefixCache                       // accepted; scores 0 until prefixes are indexed
)
