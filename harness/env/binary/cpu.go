package binary

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// ticks of processor time a second, as /proc counts them on every Linux.
const ticks = 100

// CPU is the processor time that the running processes of its group have used; false where it cannot be known.
func (s *Started) CPU() (time.Duration, bool) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, false
	}
	group := strconv.Itoa(s.p.cmd.Process.Pid)
	sum, found := 0, false
	for _, path := range files {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		// The name stands in parentheses and may hold anything: state, parent, group, ... come after it.
		f := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
		if len(f) < 13 || string(f[2]) != group {
			continue
		}
		user, err1 := strconv.Atoi(string(f[11]))
		system, err2 := strconv.Atoi(string(f[12]))
		if err1 != nil || err2 != nil {
			continue
		}
		sum, found = sum+user+system, true
	}
	return time.Duration(sum) * time.Second / ticks, found
}
