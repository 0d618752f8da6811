package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/llm-weir/weir/harness/profile"
	"github.com/llm-weir/weir/harness/scenario"
	"github.com/llm-weir/weir/harness/sut"
	"github.com/llm-weir/weir/suites/catalog"
)

// configuration is what a router is given, and who needs it.
type configuration struct {
	identity  string
	config    sut.Configuration
	scenarios []scenario.Compiled
}

// configurations are all that the scenarios of a profile need, the most needed first. What the contract cannot express is left out.
func configurations(p profile.Profile) []configuration {
	var out []configuration
	for _, c := range catalog.Compile(p, 1) {
		id, err := sut.Identity(c.Config, p.Config)
		if err != nil || len(c.Checks) == 0 || c.Config.NeedsKube() || c.Config.Pickers > 1 {
			continue
		}
		i := slices.IndexFunc(out, func(x configuration) bool { return x.identity == id })
		if i < 0 {
			out, i = append(out, configuration{identity: id, config: c.Config}), len(out)
		}
		out[i].scenarios = append(out[i].scenarios, c)
	}
	slices.SortStableFunc(out, func(a, b configuration) int { return len(b.scenarios) - len(a.scenarios) })
	return out
}

// findConfiguration finds one by the name of a scenario or by its hash.
func findConfiguration(p profile.Profile, name string) (configuration, error) {
	for _, c := range configurations(p) {
		if c.identity == name || slices.ContainsFunc(c.scenarios, func(s scenario.Compiled) bool { return s.Name == name }) {
			return c, nil
		}
	}
	return configuration{}, fmt.Errorf("configuration %q: no scenario of profile %s has this name or hash (weir list configurations)", name, p.Name)
}

// mostEndpoints is how many simulators the largest configuration needs.
func mostEndpoints(p profile.Profile) int {
	most := 0
	for _, c := range configurations(p) {
		most = max(most, len(c.config.Endpoints))
	}
	return most
}

// configurations prints all, or one of them.
func (c *listCmd) configurations(t io.Writer, con *console, p profile.Profile) error {
	if c.Of != "" {
		g, err := findConfiguration(p, c.Of)
		if err != nil {
			return err
		}
		doc, err := sut.Render(g.config, p.Config)
		if err != nil {
			return err
		}
		rest, err := yaml.Marshal(map[string]any{"objectives": g.config.Objectives, "endpoints": len(g.config.Endpoints)})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(con.out, "%s---\n%s", doc, rest)
		return err
	}
	fmt.Fprintln(t, "CONFIGURATION\tENDPOINTS\tSCENARIOS\tREQUIREMENTS\tNAMES")
	for _, g := range configurations(p) {
		var names, ids []string
		for _, s := range g.scenarios {
			names = append(names, s.Name)
			for _, id := range s.Requirements() {
				if !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
			}
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%s\n", g.identity, len(g.config.Endpoints), len(names), len(ids), clip(strings.Join(names, " "), 100))
	}
	return nil
}
