package report

import (
	"fmt"
	"strconv"
	"strings"
)

// fact is one cell of the strip that says what was run, where, and how far its claims reach.
type fact struct{ Name, Value string }

// facts is the strip, without cells that have nothing to say.
func facts(in Input) []fact {
	m := in.manifest()
	complete := "yes"
	if !m.Complete {
		complete = "NO: interrupted"
	}
	host := strings.Trim(m.Host.OS+"/"+m.Host.Arch, "/")
	if m.Host.CPUs > 0 {
		host += ", " + plural(m.Host.CPUs, "CPU")
	}
	profile := m.Profile
	if m.Level != "" {
		profile += " (level " + m.Level + ")"
	}
	clock := m.Clock
	if m.Clock == "real" {
		clock += ", skew ≤ " + fixed(float64(m.SkewBoundNs)/1e6, 3) + " ms"
	}
	mutants := ""
	if in.Mutants > 0 {
		mutants = fmt.Sprintf("%d of %d killed", in.MutantsKilled, in.Mutants)
	}
	all := []fact{
		{"implementation", in.implementation()}, {"profile", profile}, {"environment", m.Environment}, {"clock", clock},
		{"host", host}, {"seed", strconv.FormatUint(m.Seed, 10)}, {"run id", m.RunID}, {"date", in.Date},
		{"suite", strings.TrimSpace(m.Tool + " " + m.Commit)}, {"mutants", mutants}, {"complete", complete},
		{"claim boundary", ClaimBoundary}, {"not claimed", strings.Join(exclusions(m), "; ")},
	}
	var out []fact
	for _, f := range all {
		if strings.TrimSpace(f.Value) != "" {
			out = append(out, f)
		}
	}
	return out
}
