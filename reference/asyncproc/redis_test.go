package asyncproc

import (
	"bufio"
	"context"
	"net"
	"os/exec"
	"strings"
	"testing"
)

// redisServer starts a redis-server on a free loopback port and returns its address.
func redisServer(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("no redis-server on PATH: this test runs against the embedded server only")
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	ln.Close()
	cmd := exec.Command(path, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.Contains(strings.ToLower(lines.Text()), "ready to accept connections") {
			return addr
		}
	}
	t.Fatal("redis-server did not start")
	return ""
}
