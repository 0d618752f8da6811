package local

import (
	"fmt"

	"github.com/llm-weir/weir/harness/env"
)

// Keep lets f be called after the last step of a script, while everything is still up; about says how to reach it, a line each.
func (s *System) Keep(f func(about []string, played error)) { s.keep = f }

// about says how to reach what is up.
func (st *stage) about() []string {
	var out []string
	for _, d := range st.doors {
		out = append(out, "gateway   "+d.sender.BaseURL)
	}
	for _, r := range st.pickers() {
		out = append(out, "picker    ext_proc "+r.GRPCAddr())
		if m := r.MetricsAddr(); m != "" {
			out = append(out, "metrics   http://"+m+"/metrics")
		}
	}
	for _, sm := range st.sims {
		out = append(out, fmt.Sprintf("%-9s http://%s (admin under /admin/)", sm.spec.Name, sm.addr))
	}
	if len(st.doors) > 0 {
		out = append(out, "try: curl -i "+st.doors[0].sender.BaseURL+`/v1/completions -H 'content-type: application/json' -d '{"model":"`+env.Model+`","prompt":"hello","max_tokens":4}'`)
	}
	for _, sm := range st.sims {
		out = append(out, "     curl http://"+sm.addr+"/admin/state")
	}
	return out
}
