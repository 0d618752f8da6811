package binary

import (
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// TestPortsOfTwoProcesses: what one process was given, another one is not; and a process that has given all its ports begins again.
func TestPortsOfTwoProcesses(t *testing.T) {
	exe := Fake("ports")
	argv, err := exe.Argv(Values{Config: "c", GRPCPort: "1", HealthPort: "2", MetricsPort: "3", EndpointsFile: "e", ObjectivesFile: "o"})
	if err != nil {
		t.Fatal(err)
	}
	other := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	stdin, err := other.StdinPipe() // it keeps its blocks until this is closed
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 64<<10)
	n, err := io.ReadAtLeast(out, line, 1)
	if err != nil {
		t.Fatal(err)
	}
	theirs := map[string]bool{}
	for _, p := range strings.Fields(string(line[:n])) {
		theirs[p] = true
	}
	if len(theirs) < 60 {
		t.Fatalf("the other one has %d ports", len(theirs))
	}
	seen := map[int]int{}
	for range ownBlocks*(blockSize-1) + 10 {
		p, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if theirs[strconv.Itoa(p)] {
			t.Fatalf("port %d is the other one's", p)
		}
		seen[p]++
	}
	if len(seen) < ownBlocks*(blockSize-1)/2 {
		t.Errorf("only %d different ports", len(seen))
	}
	stdin.Close()
	if err := other.Wait(); err != nil {
		t.Error(err)
	}
}
