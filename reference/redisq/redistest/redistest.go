// Package redistest runs a real redis-server for tests, on a loopback port of its own that it keeps over an end and a return.
package redistest

import (
	"bufio"
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"
)

// Found tells whether there is a redis-server on PATH.
func Found() bool {
	_, err := exec.LookPath("redis-server")
	return err == nil
}

// Server is a redis-server that may be killed and started again.
type Server struct {
	tb   testing.TB
	args []string
	addr string
	cmd  *exec.Cmd // nil: it is down
}

// New prepares a server with further arguments, and ends it with the test; nothing runs before Start. Where there is no redis-server the
// test is skipped.
func New(tb testing.TB, args ...string) *Server {
	tb.Helper()
	if !Found() {
		tb.Skip("no redis-server on PATH: this test runs against the embedded server only")
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{tb: tb, addr: ln.Addr().String()}
	ln.Close()
	_, port, _ := net.SplitHostPort(s.addr)
	s.args = append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", tb.TempDir()}, args...)
	tb.Cleanup(s.Kill)
	return s
}

// Start starts a server and returns when it takes connections.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	s := New(tb, args...)
	s.Start()
	return s
}

// Addr is its host:port, whether it runs or not.
func (s *Server) Addr() string { return s.addr }

// Start returns when the server takes connections.
func (s *Server) Start() {
	s.tb.Helper()
	s.cmd = exec.Command("redis-server", s.args...)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		s.tb.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(strings.ToLower(lines.Text()), "ready to accept connections") {
			return
		}
	}
	s.tb.Fatal("redis-server did not start")
}

// Kill ends it at once; it is safe to call again.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}
