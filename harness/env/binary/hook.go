package binary

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/clock"
)

// Hook is a command that is run to its end.
type Hook struct{ command Command }

// ParseHook reads a command line with placeholders of these names.
func ParseHook(text string, names []string) (*Hook, error) {
	c, err := parse(text, names)
	if err != nil {
		return nil, err
	}
	return &Hook{c}, nil
}

// HookUnsupported is the exit status with which a hook says that its router cannot do what it is asked for.
const HookUnsupported = 77

// hookGrace is how long a hook may take to end once it is told to.
const hookGrace = 500 * time.Millisecond

// Run runs the hook and gives what it printed. Ending with another status than 0, or not within limit, is a *StartError; then nothing that
// it started is left. What a hook that succeeded has left running is the router's own.
func (h *Hook) Run(ctx context.Context, values map[string]string, limit time.Duration) (string, error) {
	argv, err := h.command.fill(values)
	if err != nil {
		return "", err
	}
	p, err := run(argv)
	if err != nil {
		return "", &StartError{Argv: argv, ExitCode: -1, Why: err.Error()}
	}
	t := clock.NewReal().Timer(limit)
	defer t.Stop()
	fail := &StartError{Argv: argv, ExitCode: -1}
	select {
	case <-p.ended:
		status, text := p.exit()
		if status == 0 {
			return p.out.String(), nil
		}
		fail.Ended, fail.ExitCode, fail.Why = true, status, "it ended with "+text
	case <-t.C:
		fail.Why = fmt.Sprintf("it has not ended within %s", limit)
	case <-ctx.Done():
		fail.Why = "it was stopped: " + context.Cause(ctx).Error()
	}
	p.stop(hookGrace)
	fail.Output = strings.TrimSpace(p.out.last(4096))
	return p.out.String(), fail
}
