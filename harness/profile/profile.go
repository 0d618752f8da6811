// Package profile holds the contract versions as data: header names, status per outcome, metric names, defaults, tolerances.
//
// The expected values come from the requirement catalogue (spec/requirements.md, "Expected values per profile"), never from the
// reference's code: a mistake must not be shared by the judge and the judged.
package profile

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

//go:embed data/*.yaml
var data embed.FS

// Default is the profile judged when none is named.
const Default = "llm-d-router-2026-09"

// Profile is one contract version.
type Profile struct {
	Name     string `yaml:"name"`
	Title    string `yaml:"title"`
	Headers  Names  `yaml:"headers"`
	Refusals struct {
		Capacity          Answer `yaml:"capacity"`
		CapacityEmptyPool Answer `yaml:"capacityEmptyPool"`
		TTL               Answer `yaml:"ttl"`
		TTLEmptyPool      Answer `yaml:"ttlEmptyPool"`
		Shutdown          Answer `yaml:"shutdown"`
		Evicted           Answer `yaml:"evicted"`
	} `yaml:"refusals"`
	Reasons       []string   `yaml:"reasons"`
	Tolerances    Tolerances `yaml:"tolerances"`
	Config        Config     `yaml:"config"`
	BodyEquality  string     `yaml:"bodyEquality"`
	Features      []string   `yaml:"features"`
	Metrics       Metrics    `yaml:"metrics"`
	Processor     *Processor `yaml:"processor"` // of a contract of Async Processors; nil: it is one of routers
	NotApplicable []string   `yaml:"notApplicable"`
	Recorded      []string   `yaml:"recorded"`
	ExpectedFail  []string   `yaml:"expectedFail"`
}

// Names are the request headers, the documented one first.
type Names struct {
	Objective []string `yaml:"objective"`
	Fairness  []string `yaml:"fairness"`
}

// Answer is a status and a dropped reason; an empty reason is not judged, status 0 means the profile says nothing.
type Answer struct {
	Status int    `yaml:"status"`
	Reason string `yaml:"reason"`
}

// Tolerances depend on the implementation's mechanisms and are recorded with the checks.
type Tolerances struct {
	TTLLate   time.Duration `yaml:"ttlLate"`
	Slack     time.Duration `yaml:"slack"`
	Staleness time.Duration `yaml:"staleness"`
}

// Config says how a configuration document of this contract is written.
type Config struct {
	APIVersion          string        `yaml:"apiVersion"`
	Detector            string        `yaml:"detector"`
	DetectorInProfile   bool          `yaml:"detectorInProfile"`
	ConcurrencyDetector bool          `yaml:"concurrencyDetector"`
	Spacing             time.Duration `yaml:"spacing"`
}

// Metrics are the names under which a series must be found; all of them where there are several.
type Metrics struct {
	QueueSize      []string `yaml:"queueSize"`
	QueueBytes     []string `yaml:"queueBytes"`
	PoolSaturation []string `yaml:"poolSaturation"`
	QueueDuration  []string `yaml:"queueDuration"`
	RequestsTotal  []string `yaml:"requestsTotal"`
	OutputTokens   []string `yaml:"outputTokens"`   // histogram of completion tokens per request
	FirstToken     []string `yaml:"firstToken"`     // histogram of the time to the first token; empty: none
	ReadyEndpoints []string `yaml:"readyEndpoints"` // gauge of the pool's size
	PerEndpoint    []string `yaml:"perEndpoint"`    // gauge per endpoint, with the label EndpointLabel
	EndpointLabel  string   `yaml:"endpointLabel"`
	StaleEndpoints []string `yaml:"staleEndpoints"`
	BandBytes      string   `yaml:"bandBytes"` // share of its byte limit that a band uses; "": none
}

// Processor is what differs between the contracts of Async Processors (spec/requirements.md, "Expected values per profile: processor").
type Processor struct {
	Durable         bool     `yaml:"durable"`         // what a killed process held is handled again (AP-DRAIN-05)
	SubmissionOrder bool     `yaml:"submissionOrder"` // equal deadlines leave as they came (AP-TRN-04)
	Payload         string   `yaml:"payload"`         // "bytes" or "json" (AP-WIRE-04)
	PriorityHeader  string   `yaml:"priorityHeader"`  // of tier-priority where none is named; "": none (AP-MERGE-08)
	ParkedTooLong   string   `yaml:"parkedTooLong"`   // "terminal" or "requeued" (AP-POOL-10)
	ResultFields    []string `yaml:"resultFields"`    // beside the documented ones (AP-RES-09)
}

// All lists the profiles of routers, the default first.
func All() []string { return []string{Default, "llm-d-router-0.9", "rhoai-3.4"} }

// DefaultProcessor is the profile of Async Processors judged when none is named.
const DefaultProcessor = "llm-d-async-0.10"

// Processors lists the profiles of Async Processors, the default first.
func Processors() []string { return []string{DefaultProcessor, "llm-d-async-0.9"} }

// Named reads a profile; the error of an unknown name lists the known ones.
func Named(name string) (Profile, error) {
	if all := append(All(), Processors()...); !slices.Contains(all, name) {
		return Profile{}, fmt.Errorf("unknown profile %q: use one of %s", name, strings.Join(all, ", "))
	}
	raw, err := data.ReadFile("data/" + name + ".yaml")
	if err != nil {
		return Profile{}, fmt.Errorf("profile %s: %w", name, err)
	}
	var p Profile
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(&p); err != nil {
		return Profile{}, fmt.Errorf("profile %s: %w", name, err)
	}
	var errs []error
	for _, list := range []*[]string{&p.NotApplicable, &p.Recorded, &p.ExpectedFail} {
		expanded, err := expand(*list)
		*list = expanded
		errs = append(errs, err)
	}
	return p, errors.Join(errs...)
}

var idRange = regexp.MustCompile(`^([A-Z0-9]+(?:-[A-Z]+)?)-(\d+)\.\.(\d+)$`)

// expand turns FC-CEIL-04..12 into the single ids.
func expand(list []string) ([]string, error) {
	var out []string
	var errs []error
	for _, s := range list {
		if !strings.Contains(s, "..") {
			out = append(out, s)
			continue
		}
		m := idRange.FindStringSubmatch(s)
		if m == nil {
			errs = append(errs, fmt.Errorf("requirement range %q: write FAMILY-FROM..TO", s))
			continue
		}
		from, _ := strconv.Atoi(m[2])
		to, _ := strconv.Atoi(m[3])
		for i := from; i <= to; i++ {
			out = append(out, fmt.Sprintf("%s-%02d", m[1], i))
		}
	}
	return out, errors.Join(errs...)
}

// Applies tells whether a requirement is judged under this profile; otherwise why says what becomes of it.
func (p Profile) Applies(id string) (judged bool, why string) {
	switch {
	case slices.Contains(p.NotApplicable, id):
		return false, "not applicable under profile " + p.Name
	case slices.Contains(p.Recorded, id):
		return false, "recorded only under profile " + p.Name + ": its text is silent on this"
	}
	return true, ""
}
