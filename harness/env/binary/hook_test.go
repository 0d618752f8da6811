package binary

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/clock"
)

func TestHook(t *testing.T) {
	for _, c := range []struct {
		says, command string
		limit         time.Duration
		printed, want string
		status        int
	}{
		{"a word is filled in and stays one", `sh -c 'printf %s:%s $# "$1"' x {{.Config}}`, time.Minute, "1:a b", "", 0},
		{"a status", "sh -c 'echo why >&2; exit 4'", time.Minute, "why\n", "it ended with exit status 4; it printed: why", 4},
		{"no end", "sh -c 'echo begun; sleep 600'", 300 * time.Millisecond, "begun\n", "it has not ended within 300ms", -1},
		{"no such program", "./none", time.Minute, "", "no such file", -1},
	} {
		h, err := ParseHook(c.command, []string{"Config"})
		if err != nil {
			t.Fatal(err)
		}
		printed, err := h.Run(context.Background(), map[string]string{"Config": "a b"}, c.limit)
		var failed *StartError
		switch {
		case c.want == "" && err != nil, printed != c.printed:
			t.Errorf("%s: %q, %v", c.says, printed, err)
		case c.want != "" && (!errors.As(err, &failed) || failed.ExitCode != c.status || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q and status %d", c.says, err, c.want, c.status)
		}
	}
	if _, err := ParseHook("x {{.Conf}}", []string{"Config", "Endpoints"}); err == nil || !strings.Contains(err.Error(), "use {{.Config}}, {{.Endpoints}}") {
		t.Errorf("a placeholder that is none: %v", err)
	}
}

// What a hook that hangs has started is gone when it is given up; what one that succeeds leaves running is the router's.
func TestHookLeavesNoOrphans(t *testing.T) {
	for _, c := range []struct {
		says, command string
		lives         bool
	}{
		{"it hangs", `sh -c 'sleep 600 & echo $! >"$0"; wait' {{.Config}}`, false},
		{"it fails", `sh -c 'sleep 600 & echo $! >"$0"; exit 1' {{.Config}}`, false},
		{"it succeeds", `sh -c 'sleep 600 >/dev/null 2>&1 & echo $! >"$0"' {{.Config}}`, true},
	} {
		h, err := ParseHook(c.command, []string{"Config"})
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "pid")
		_, err = h.Run(context.Background(), map[string]string{"Config": file}, time.Second)
		if (err == nil) != c.lives {
			t.Errorf("%s: %v", c.says, err)
		}
		pid, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		alive := func() bool {
			state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
			return err == nil && !strings.Contains(string(state), ") Z ")
		}
		lives := alive()
		for since := clock.NewReal(); lives && !c.lives && since.Now() < 10*time.Second; lives = alive() {
			pause() // a signal takes its time to be obeyed
		}
		if lives != c.lives {
			t.Errorf("%s: the child lives: %v, want %v", c.says, lives, c.lives)
		}
		if lives {
			kill(t, strings.TrimSpace(string(pid)))
		}
	}
}

func kill(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(n)
	if err == nil {
		err = p.Kill()
	}
	if err != nil {
		t.Error(err)
	}
}
