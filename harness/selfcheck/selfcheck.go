package selfcheck

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/llm-weir/weir/harness/verdict"
)

// Judge plays the whole catalogue against a variant of the reference and gives the results.
type Judge func(ctx context.Context, m Mutant, seed uint64) ([]verdict.Result, error)

// Options of a self-check.
type Options struct {
	Judge    Judge
	Contract string // name of the judged profile
	Mutants  []Mutant
	Clean    int // runs of the unmutated reference, each with a seed of its own
	Seed     uint64
	Parallel int
	OnDone   func(Row) // hears of each mutant as it is done; may be called concurrently
}

// Row is what became of one mutant.
type Row struct {
	Mutant string   `json:"mutant"`
	Fault  string   `json:"fault"`
	Class  string   `json:"class"`
	Meant  []string `json:"meant"`
	Killed bool     `json:"killed"`
	// NotApplicable says why the mutant shows nothing under this contract; it does not count then.
	NotApplicable string   `json:"notApplicable,omitempty"`
	By            []string `json:"by"`     // requirements that failed
	Missed        []string `json:"missed"` // requirements meant for it that did not fail
	Error         string   `json:"error,omitempty"`
}

// Matrix is the outcome of a self-check.
type Matrix struct {
	Contract    string   `json:"contract"`
	Judged      int      `json:"judged"` // mutants that apply
	Seed        uint64   `json:"seed"`
	Killed      int      `json:"killed"`
	Rows        []Row    `json:"mutants"`
	CleanRuns   int      `json:"referenceRuns"`
	CleanPassed int      `json:"referencePassed"`
	CleanFails  []string `json:"referenceFailures,omitempty"`
	// Unkilled are the requirements that the run judged as passed by the reference and that no mutant made fail: holes in the
	// proof, not failures of it.
	Unproven []string `json:"unproven"`
}

// OK tells whether every mutant was killed and the reference passed every run.
func (m Matrix) OK() bool {
	return m.Judged > 0 && m.Killed == m.Judged && m.CleanRuns > 0 && m.CleanPassed == m.CleanRuns
}

// Run checks the suite.
func Run(ctx context.Context, o Options) (Matrix, error) {
	m := Matrix{Contract: o.Contract, Seed: o.Seed, Rows: make([]Row, len(o.Mutants)), CleanRuns: o.Clean}
	passed := map[string]bool{}
	for i := range o.Clean {
		rs, err := o.Judge(ctx, Mutant{Name: "reference"}, o.Seed+uint64(i))
		if err != nil {
			return m, fmt.Errorf("unmutated reference: %w", err)
		}
		bad := false
		for _, r := range rs {
			switch r.Kind {
			case verdict.Pass:
				passed[r.ID] = true
			case verdict.NotApplicable:
			default:
				bad = true
				m.CleanFails = append(m.CleanFails, fmt.Sprintf("seed %d: %s %s: %s", o.Seed+uint64(i), r.ID, r.Kind, r.Why))
			}
		}
		if !bad {
			m.CleanPassed++
		}
	}
	work := make(chan int)
	var workers sync.WaitGroup
	for range max(1, o.Parallel) {
		workers.Go(func() {
			for i := range work {
				m.Rows[i] = try(ctx, o, o.Mutants[i])
				if o.OnDone != nil {
					o.OnDone(m.Rows[i])
				}
			}
		})
	}
	for i := range o.Mutants {
		work <- i
	}
	close(work)
	workers.Wait()
	for _, r := range m.Rows {
		if r.NotApplicable == "" {
			m.Judged++
		}
		if r.Killed {
			m.Killed++
		}
		for _, id := range r.By {
			delete(passed, id)
		}
	}
	for id := range passed {
		m.Unproven = append(m.Unproven, id)
	}
	slices.Sort(m.Unproven)
	return m, ctx.Err()
}

func try(ctx context.Context, o Options, mu Mutant) Row {
	row := Row{Mutant: mu.Name, Fault: mu.Fault, Class: mu.Class, Meant: mu.Meant}
	if slices.Contains(mu.Except, o.Contract) {
		row.NotApplicable = "the fault is none under " + o.Contract
		return row
	}
	rs, err := o.Judge(ctx, mu, o.Seed)
	if err != nil {
		row.Error = err.Error()
		return row
	}
	row.By = verdict.IDs(rs, verdict.Fail)
	if !anyJudged(rs, mu.Meant) && mu.Name != Noop().Name {
		row.NotApplicable = "none of " + strings.Join(mu.Meant, " ") + " is judged under " + o.Contract
		return row
	}
	for _, id := range mu.Meant {
		if !slices.Contains(row.By, id) {
			row.Missed = append(row.Missed, id)
		}
	}
	row.Killed = len(row.Missed) < len(mu.Meant)
	return row
}

// anyJudged tells whether one of the requirements got a verdict that could have been a fail.
func anyJudged(rs []verdict.Result, ids []string) bool {
	for _, r := range rs {
		if slices.Contains(ids, r.ID) && r.Kind != verdict.NotApplicable {
			return true
		}
	}
	return false
}

// WriteJSON writes the matrix.
func (m Matrix) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(m)
}

// WriteText prints the matrix mutant × requirement.
func (m Matrix) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "MUTANT\tCLASS\tRESULT\tKILLED BY")
	for _, r := range m.Rows {
		result := "killed"
		switch {
		case r.NotApplicable != "":
			result = "n/a"
		case !r.Killed:
			result = "ALIVE"
		}
		by := strings.Join(r.By, " ")
		if len(r.By) > 8 {
			by = fmt.Sprintf("%s … (%d)", strings.Join(r.By[:8], " "), len(r.By))
		}
		if r.NotApplicable != "" {
			by = r.NotApplicable
		} else if !r.Killed {
			by = fmt.Sprintf("meant for %s; failed: %s%s", strings.Join(r.Meant, " "), by, r.Error)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", r.Mutant, r.Class, result, by)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, f := range m.CleanFails {
		fmt.Fprintln(w, "reference:", f)
	}
	if len(m.Unproven) > 0 {
		fmt.Fprintf(w, "no mutant fails these, so nothing shows that they can fail: %s\n", strings.Join(m.Unproven, " "))
	}
	_, err := fmt.Fprintf(w, "%d of %d mutants killed; the unmutated reference passed %d of %d runs\n", m.Killed, m.Judged, m.CleanPassed, m.CleanRuns)
	return err
}
