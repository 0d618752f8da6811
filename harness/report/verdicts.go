package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/llm-weir/weir/harness/verdict"
)

// VerdictsSchema is the version of the layout of verdicts.json.
const VerdictsSchema = "weir.verdicts/v1"

// Verdicts is the content of verdicts.json.
type Verdicts struct {
	Schema        string           `json:"schema"`
	RunID         string           `json:"runId"`
	Date          string           `json:"date,omitempty"`
	Profile       string           `json:"profile"`
	Complete      bool             `json:"complete"`
	Overall       verdict.Kind     `json:"overall"` // what may be claimed: Input.Verdict
	Mutants       int              `json:"mutants"`
	MutantsKilled int              `json:"mutantsKilled"`
	Command       string           `json:"command"`
	Results       []verdict.Result `json:"results"`
}

// VerdictsJSON writes every verdict with its inputs.
func VerdictsJSON(w io.Writer, in Input) error {
	m := in.manifest()
	v := Verdicts{Schema: VerdictsSchema, RunID: m.RunID, Date: in.Date, Profile: m.Profile, Complete: m.Complete,
		Overall: in.Verdict(), Mutants: in.Mutants, MutantsKilled: in.MutantsKilled, Command: in.Command,
		Results: append([]verdict.Result{}, in.Results...)}
	for i := range v.Results {
		if v.Results[i].Verdicts == nil { // an empty list, so that readers need not know null
			v.Results[i].Verdicts = []verdict.Verdict{}
		}
	}
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("verdicts: %w", err)
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// ReadVerdicts reads verdicts.json of a bundle folder.
func ReadVerdicts(dir string) (Verdicts, error) {
	path := filepath.Join(dir, VerdictsFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return Verdicts{}, fmt.Errorf("verdicts: %w", err)
	}
	var v Verdicts
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		return Verdicts{}, fmt.Errorf("%s: %w", path, err)
	}
	if v.Schema != VerdictsSchema {
		return Verdicts{}, fmt.Errorf("%s: schema %q is not %q: judge the bundle again with this version", path, v.Schema, VerdictsSchema)
	}
	return v, nil
}
