package virtual

import (
	"time"

	"github.com/llm-weir/weir/harness/env"
)

// Watch implements sut.Watcher.
func (st *stage) Watch(mark string, every time.Duration) (stop func()) {
	over := false
	var read func()
	read = func() {
		if over {
			return
		}
		_ = st.sample("", env.Page{Mark: mark, Source: "router"}) // a page that cannot be read leaves no sample
		for _, sv := range st.servers {
			_ = st.sample(sv.spec.Name, env.Page{Mark: mark, Only: env.Pressure})
		}
		st.after(every, read)
	}
	read()
	return func() { over = true }
}
