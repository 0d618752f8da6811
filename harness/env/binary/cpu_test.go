package binary

import (
	"os"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/clock"
)

func TestCPU(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc")
	}
	// The work is done by a child: the group counts.
	busy, err := Spawn([]string{"sh", "-c", "(while :; do :; done) & wait"})
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Stop(0)
	c := clock.NewReal()
	for {
		used, ok := busy.CPU()
		if ok && used >= 50*time.Millisecond {
			break
		}
		if c.Now() > 10*time.Second {
			t.Fatalf("it used %v, %v", used, ok)
		}
		pause()
	}
	idle, err := Spawn([]string{"sleep", "60"})
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Stop(0)
	if used, ok := idle.CPU(); !ok || used > 200*time.Millisecond {
		t.Errorf("one that sleeps used %v, %v", used, ok)
	}
	idle.Stop(0)
	if used, ok := idle.CPU(); ok {
		t.Errorf("one that has ended used %v", used)
	}
}
