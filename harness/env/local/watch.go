package local

import (
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/env"
)

// Watch implements sut.Watcher. The router's page and each model server's have a reader of their own, so that a slow one does not hold
// up the others.
func (st *stage) Watch(mark string, every time.Duration) (stop func()) {
	over := make(chan struct{})
	var readers sync.WaitGroup
	watch := func(endpoint string) {
		readers.Go(func() {
			for at := st.Clock.Now(); ; at += every {
				_ = st.sample(endpoint, env.Page{Mark: mark, Source: "router", Only: env.Pressure}) // one that cannot be read leaves no sample
				t := st.Clock.Timer(at + every - st.Clock.Now())
				select {
				case <-t.C:
				case <-over:
					t.Stop()
					return
				}
			}
		})
	}
	watch("")
	for _, sm := range st.sims {
		watch(sm.spec.Name)
	}
	return func() {
		close(over)
		readers.Wait()
	}
}
