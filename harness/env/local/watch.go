package local

import (
	"time"

	"github.com/llm-weir/weir/harness/env"
)

// Watch implements sut.Watcher.
func (st *stage) Watch(mark string, every time.Duration) (stop func()) {
	var names []string
	for _, sm := range st.sims {
		names = append(names, sm.spec.Name)
	}
	// One that cannot be read leaves no sample.
	return env.Watch(st.Clock, every, names, func(endpoint string) {
		_ = st.sample(endpoint, env.Page{Mark: mark, Source: "router", Only: env.Pressure})
	})
}
