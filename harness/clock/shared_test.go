package clock_test

import (
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/clock"
)

// TestShared: two clocks of one machine read the same.
func TestShared(t *testing.T) {
	a, id := clock.NewShared()
	if id == "" {
		t.Skip("this machine has no name for its clock")
	}
	b, other := clock.NewShared()
	if id != other {
		t.Errorf("one machine, two clocks: %q and %q", id, other)
	}
	before, between, after := a.Now(), b.Now(), a.Now()
	if slack := 100 * time.Microsecond; between < before-slack || between > after+slack {
		t.Errorf("%v is not between %v and %v", between, before, after)
	}
	if before <= 0 {
		t.Errorf("the machine was started %v ago", before)
	}
}
