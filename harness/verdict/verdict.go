// Package verdict says what a verdict is and how verdicts combine: fail > error > inconclusive > pass > not-applicable.
package verdict

import "fmt"

// Kind is one of the five verdicts (INV-16).
type Kind uint8

// The verdicts in rising order of precedence. The zero value is NotApplicable, so that a forgotten verdict can never pass.
const (
	NotApplicable Kind = iota
	Pass
	Inconclusive
	Error
	Fail
)

var names = [...]string{"not-applicable", "pass", "inconclusive", "error", "fail"}

func (k Kind) String() string {
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Kinds lists all verdicts.
func Kinds() []Kind { return []Kind{NotApplicable, Pass, Inconclusive, Error, Fail} }

// MarshalText writes the verdict's word.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a verdict's word.
func (k *Kind) UnmarshalText(b []byte) error {
	for i, n := range names {
		if n == string(b) {
			*k = Kind(i)
			return nil
		}
	}
	return fmt.Errorf("unknown verdict %q", b)
}

// Verdict is what one check says about one requirement from the evidence of one scenario.
type Verdict struct {
	Requirement string   `json:"requirement"`
	Scenario    string   `json:"scenario"`
	Check       string   `json:"check"`
	Kind        Kind     `json:"verdict"`
	Figure      string   `json:"figure"`              // the number or fact that decided, short
	Why         string   `json:"why,omitempty"`       // what was expected and what was seen; empty on a plain pass
	Engaged     string   `json:"engaged,omitempty"`   // what shows that the mechanism was at work, or what did not engage
	Witnesses   []string `json:"witnesses,omitempty"` // ids of the records that decide, the first violating ones first
}

// Worst is the combination of verdicts: the one with the highest precedence. No verdict at all is Inconclusive: absence is
// never success.
func Worst(vs ...Kind) Kind {
	if len(vs) == 0 {
		return Inconclusive
	}
	w := vs[0]
	for _, v := range vs[1:] {
		w = max(w, v)
	}
	return w
}
