package binary

import (
	"syscall"
	"time"
)

// Started is a program that runs under the caller's hand: an Async Processor, a broker.
type Started struct{ p *process }

// Spawn runs a program in a process group of its own, with further variables in its environment.
func Spawn(argv []string, env ...string) (*Started, error) {
	p, err := run(argv, env...)
	if err != nil {
		return nil, err
	}
	return &Started{p}, nil
}

// Signal sends a signal to its group.
func (s *Started) Signal(sig syscall.Signal) { s.p.signal(sig) }

// Ended is closed when it has ended and what it printed has been read.
func (s *Started) Ended() <-chan struct{} { return s.p.ended }

// Exit words how it ended, and gives its status: -1 where it has none.
func (s *Started) Exit() (status int, text string) { return s.p.exit() }

// Output is what it printed, or the beginning and the end of it.
func (s *Started) Output() string { return s.p.out.String() }

// Stop asks it to end, kills it if it has not ended within grace, and kills whatever it left behind.
func (s *Started) Stop(grace time.Duration) { s.p.stop(grace) }

// ParseWith splits a command as a shell does, without expanding anything, and checks that it uses no placeholder but these.
func ParseWith(text string, placeholders ...string) (Command, error) {
	return parse(text, placeholders)
}

// Fill fills the placeholders of ParseWith in.
func (c Command) Fill(values map[string]string) ([]string, error) { return c.fill(values) }
