package clock

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// NewShared is a clock that every process of this machine shares, since its epoch is when the machine was started, and a name that is the same in all
// of them, in containers too. Where the machine has no such name it is "" and the epoch is now.
func NewShared() (Real, string) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return NewReal(), ""
	}
	var best Real
	width := time.Duration(1 << 62)
	for range 8 { // the reading between two others that are closest to each other
		before := time.Now()
		var ts unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) != nil {
			return NewReal(), ""
		}
		if w := time.Since(before); w < width {
			width, best = w, Real{epoch: before.Add(w / 2).Add(-time.Duration(ts.Nano()))}
		}
	}
	return best, "boot " + strings.TrimSpace(string(id))
}
