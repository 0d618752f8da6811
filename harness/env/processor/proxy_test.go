package processor

import (
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/llm-weir/weir/harness/clock"
)

// echo answers whatever it gets.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return ln.Addr().String()
}

// answers tells whether a connection that dial made is one to the echo.
func answers(t *testing.T, c net.Conn, err error) bool {
	t.Helper()
	if err != nil {
		return false
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("word")); err != nil {
		return false
	}
	got := make([]byte, 4)
	_, err = io.ReadFull(c, got)
	return err == nil && string(got) == "word"
}

func TestProxyBreaksAndHeals(t *testing.T) {
	p, err := newProxy(echo(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	dial := func() bool {
		c, err := net.Dial("tcp", p.addr)
		return answers(t, c, err)
	}
	if !dial() {
		t.Fatal("it carries nothing")
	}
	p.breakUp()
	for range 3 {
		if dial() {
			t.Error("broken, and it answers")
		}
	}
	if _, accepted := p.counts(); accepted != 4 {
		t.Errorf("%d connections are counted, want those that were closed too: 4", accepted)
	}
	if err := p.up(); err != nil || !dial() {
		t.Errorf("it did not heal: %v", err)
	}
}

func TestProxyUnderTLS(t *testing.T) {
	r := &rig{dir: t.TempDir(), clock: clock.NewReal()}
	certs, err := r.certificates()
	if err != nil {
		t.Fatal(err)
	}
	p, err := newProxy(echo(t), certs.server(false))
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	trusting, err := tls.Dial("tcp", p.addr, &tls.Config{RootCAs: certs.pool, MinVersion: tls.VersionTLS12})
	if err != nil || !answers(t, trusting, nil) {
		t.Errorf("with the authority: %v", err)
	}
	if c, err := tls.Dial("tcp", p.addr, &tls.Config{MinVersion: tls.VersionTLS12}); err == nil {
		c.Close()
		t.Error("it is trusted without the authority")
	}
	if filepath.Dir(certs.ca) != r.dir {
		t.Errorf("the authority lies in %s", certs.ca)
	}
}

func TestProxyHoldsAndCuts(t *testing.T) {
	p, err := newProxy(echo(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	c, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	read := func(limit time.Duration) (string, error) {
		if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		n, err := io.ReadFull(c, got)
		return string(got[:n]), err
	}
	p.pause()
	p.pause() // twice is once
	if _, err := c.Write([]byte("word")); err != nil {
		t.Fatal(err)
	}
	if got, err := read(50 * time.Millisecond); got != "" || err == nil {
		t.Errorf("held, and %q came", got)
	}
	p.resume()
	if got, err := read(5 * time.Second); got != "word" || err != nil {
		t.Errorf("what was held comes: %q %v", got, err)
	}
	if open, _ := p.counts(); open != 1 {
		t.Errorf("%d connections are open", open)
	}
	p.down()
	if _, err := read(5 * time.Second); err == nil {
		t.Error("it was taken down, and the connection is open")
	}
	if again, err := net.Dial("tcp", p.addr); err == nil {
		again.Close()
		t.Error("it was taken down, and listens")
	}
	at := p.addr
	if err := p.up(); err != nil || p.addr != at {
		t.Errorf("it does not come back where it was: %v", err)
	}
}
