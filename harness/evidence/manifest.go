package evidence

import "encoding/json"

// Schema is the version of the bundle's layout.
const Schema = "weir.evidence/v1"

// Manifest is the head of a bundle: what was run, against what, which checks were fixed beforehand with which parameters
// (INV-17), and the hash of every evidence file.
type Manifest struct {
	Schema           string          `json:"schema"`
	RunID            string          `json:"runId"`
	Created          string          `json:"created,omitempty"` // RFC 3339; empty in virtual time, where nothing may differ between two runs
	Tool             string          `json:"tool"`              // weir's version
	Commit           string          `json:"commit"`
	Argv             []string        `json:"argv"` // without the output folder, which is no part of what was run
	Seed             uint64          `json:"seed"`
	Profile          string          `json:"profile"`
	ReferenceProfile string          `json:"referenceProfile,omitempty"` // contract the reference was set to, if it was the system
	Mutant           string          `json:"mutant,omitempty"`
	Level            string          `json:"level"`
	Implementation   Implementation  `json:"implementation"`
	Command          string          `json:"command,omitempty"`    // starts the picker that was judged, as the flag or the descriptor has it
	Tolerances       *Tolerances     `json:"tolerances,omitempty"` // those of the descriptor, in place of the profile's
	Environment      string          `json:"environment"`
	Clock            string          `json:"clock"` // virtual or real
	SkewBoundNs      int64           `json:"skewBoundNs"`
	Host             Host            `json:"host"`
	Scenarios        []ScenarioEntry `json:"scenarios"`    // in catalogue order
	Excluded         []Exclusion     `json:"excluded"`     // requirements that the profile does not judge
	ExpectedFail     []string        `json:"expectedFail"` // known faults of the profile's build: a fail is reported as known and denies nothing
	ShownBy          []Shown         `json:"shownBy,omitempty"`
	NoBackendLog     bool            `json:"noBackendLog,omitempty"` // nobody recorded what arrived at the model servers
	Unjudged         []string        `json:"unjudged,omitempty"`     // rows of the catalogue that the level asks for and nothing in the run looks at
	RunChecks        []CheckEntry    `json:"runChecks"`              // checks over all scenarios together
	Complete         bool            `json:"complete"`               // false: the run was interrupted; what is here is what was seen
	Files            []FileEntry     `json:"files"`                  // sorted by name
}

// Implementation is who is judged.
type Implementation struct {
	Organization string   `json:"organization" yaml:"organization"`
	Project      string   `json:"project" yaml:"project"`
	Version      string   `json:"version" yaml:"version"`
	URL          string   `json:"url" yaml:"url"`
	Contact      []string `json:"contact" yaml:"contact"`
	Features     []string `json:"features" yaml:"features"`
}

// Tolerances are what a descriptor asked for; 0 leaves the profile's.
type Tolerances struct {
	TTLLateNs   int64 `json:"ttlLateNs,omitempty" yaml:"ttlLateNs,omitempty"`
	SlackNs     int64 `json:"slackNs,omitempty" yaml:"slackNs,omitempty"`
	StalenessNs int64 `json:"stalenessNs,omitempty" yaml:"stalenessNs,omitempty"`
}

// Host is where it ran; empty in virtual time.
type Host struct {
	OS   string `json:"os,omitempty"`
	Arch string `json:"arch,omitempty"`
	CPUs int    `json:"cpus,omitempty"`
	Go   string `json:"go,omitempty"`
}

// ScenarioEntry is one scenario of the run.
type ScenarioEntry struct {
	Name         string       `json:"name"`
	Title        string       `json:"title"`
	Level        string       `json:"level"`
	Hash         string       `json:"hash"` // sha256 of configuration, script and checks as JSON
	Requirements []string     `json:"requirements"`
	Checks       []CheckEntry `json:"checks"`
	// Gated scenarios count requests behind a closed gate: where the activation probe fails they show nothing (INV-01).
	Gated bool `json:"gated"`
	// NotApplicable names the feature or profile that rules the scenario out; Error is a failure of the harness or of the system
	// to come up. At most one is set; both empty means it was played.
	NotApplicable string `json:"notApplicable,omitempty"`
	Error         string `json:"error,omitempty"`
	DurationNs    int64  `json:"durationNs"`
	// NotPlayed says why nothing was done although the scenario applies: what must be shown first was not shown.
	NotPlayed string `json:"notPlayed,omitempty"`
	// SkewBoundNs is how far instants of the model servers may be off those of clients and steps, where they were read from another clock;
	// Blurred says why they cannot be compared at all.
	SkewBoundNs int64  `json:"skewBoundNs,omitempty"`
	Blurred     string `json:"blurred,omitempty"`
}

// Shown says which requirement shows that the mechanism exists whose restraint another one is about: what never evicts, evicts no work of
// priority 0 either. Without a pass of By a pass of Requirement says nothing.
type Shown struct {
	Requirement string `json:"requirement"`
	By          string `json:"by"`
}

// Exclusion is a requirement that scenarios of the run carry and the profile does not judge.
type Exclusion struct {
	Requirement string `json:"requirement"`
	Why         string `json:"why"`
}

// CheckEntry is one check with its parameters as they were fixed before the run.
type CheckEntry struct {
	Check       string          `json:"check"`
	Requirement string          `json:"requirement"`
	Params      json.RawMessage `json:"params"`
}

// FileEntry is one sealed file.
type FileEntry struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}
