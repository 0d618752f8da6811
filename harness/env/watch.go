package env

import (
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/clock"
)

// Watch reads the router's page ("") and that of each model server every so often, until stop. Each has a reader of its own, so that a slow one does
// not hold the others up.
func Watch(c clock.Clock, every time.Duration, servers []string, read func(endpoint string)) (stop func()) {
	over := make(chan struct{})
	var readers sync.WaitGroup
	for _, endpoint := range append([]string{""}, servers...) {
		readers.Go(func() {
			for at := c.Now(); ; at += every {
				read(endpoint)
				t := c.Timer(at + every - c.Now())
				select {
				case <-t.C:
				case <-over:
					t.Stop()
					return
				}
			}
		})
	}
	return func() {
		close(over)
		readers.Wait()
	}
}
