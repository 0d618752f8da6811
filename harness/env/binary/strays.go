package binary

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// markVariable is set in the environment of a program and of everything it starts, wherever that hides.
const markVariable = "WEIR_PROGRAM"

// killMarked ends every process whose environment carries a mark, and names those that had left the group. It needs /proc; without it
// nothing is found.
func killMarked(mark string, group int) (outside []string) {
	for range 10 { // one that is just starting another is seen in the next round
		found := marked(markVariable, mark)
		if len(found) == 0 {
			break
		}
		for _, f := range found {
			if f.process.Signal(syscall.SIGKILL) == nil && f.group != group {
				outside = append(outside, f.name)
			}
			_ = f.process.Release()
		}
	}
	return outside
}

type stray struct {
	process *os.Process
	name    string
	group   int
}

func marked(variable, value string) []stray {
	var out []stray
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		// The handle comes before the look, so that what is killed is what was looked at.
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(append([]byte{0}, environ...), []byte("\x00"+variable+"="+value+"\x00")) {
			_ = process.Release()
			continue
		}
		name, _ := os.ReadFile(filepath.Join(dir, "comm"))
		group, _ := syscall.Getpgid(pid)
		out = append(out, stray{process, fmt.Sprintf("%s (%d)", strings.TrimSpace(string(name)), pid), group})
	}
	return out
}
