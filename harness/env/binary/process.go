package binary

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/llm-weir/weir/harness/clock"
)

// pause is between two looks at something that nobody announces.
func pause() { clock.Sleep(context.Background(), 10*time.Millisecond) }

// process is a program with its group and what it prints.
type process struct {
	argv   []string
	cmd    *exec.Cmd
	mark   string
	out    output
	ended  chan struct{} // closed when it has ended and its output has been read
	err    error         // of its end; read after ended
	asked  atomic.Bool   // it was told to end
	killed bool          // it had to be
	strays []string      // processes that had left its group and were killed
}

// run starts a program in a process group of its own. It inherits the environment, but for what leads to a Kubernetes cluster.
func run(argv []string, env ...string) (*process, error) {
	p := &process{argv: argv, mark: rand.Text(), ended: make(chan struct{})}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	for _, v := range append(os.Environ(), append(env, markVariable+"="+p.mark)...) {
		name, _, _ := strings.Cut(v, "=")
		p.cmd.Env = append(withoutVariable(p.cmd.Env, name), v)
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = 500 * time.Millisecond // a process that it left behind may hold its output open
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		p.err = p.cmd.Wait()
	}()
	return p, nil
}

func withoutVariable(env []string, name string) []string {
	for i, v := range env {
		if strings.HasPrefix(v, name+"=") {
			return append(env[:i:i], env[i+1:]...)
		}
	}
	return env
}

// gone tells whether it has ended.
func (p *process) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// signal sends a signal to the group while its leader lives: the number of a group whose leader has ended may be another's.
func (p *process) signal(s syscall.Signal) {
	if !p.gone() {
		_ = syscall.Kill(-p.cmd.Process.Pid, s)
	}
}

// stop asks it to end, kills it if it has not ended within grace, and kills whatever it left behind.
func (p *process) stop(grace time.Duration) {
	p.asked.Store(true)
	p.signal(syscall.SIGTERM)
	t := clock.NewReal().Timer(grace)
	defer t.Stop()
	select {
	case <-p.ended:
	case <-t.C:
		p.killed = true
		p.signal(syscall.SIGKILL)
		<-p.ended
	}
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // the next best to looking at each one
	}
	p.strays = killMarked(p.mark, p.cmd.Process.Pid)
}

// exit words how it ended, and gives its status: -1 where it has none.
func (p *process) exit() (status int, text string) {
	var exit *exec.ExitError
	switch {
	case !p.gone():
		return -1, "it still runs"
	case p.err == nil || errors.Is(p.err, exec.ErrWaitDelay):
		return p.cmd.ProcessState.ExitCode(), p.cmd.ProcessState.String()
	case errors.As(p.err, &exit):
		return exit.ExitCode(), exit.String()
	}
	return -1, p.err.Error()
}

// StartError is a program that did not become ready.
type StartError struct {
	Argv     []string
	Ended    bool // it ended by itself
	ExitCode int  // its status then, else -1
	Why      string
	Output   string // the last it printed
}

func (e *StartError) Error() string {
	said := "; it printed nothing"
	if e.Output != "" {
		said = "; it printed: " + e.Output
	}
	return fmt.Sprintf("%s: %s%s", strings.Join(e.Argv, " "), e.Why, said)
}
