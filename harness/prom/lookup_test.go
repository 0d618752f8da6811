package prom

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestNames: the addresses of a name come and go; one that is gone shows nothing any more, not even that it is down.
func TestNames(t *testing.T) {
	var addresses []string
	var fails error
	now := &hand{}
	s := serve(t, Config{Clock: now, Lookup: func(_ context.Context, name string) ([]string, error) {
		if name != "pods" {
			t.Errorf("looked up %q", name)
		}
		return addresses, fails
	}})
	// Two addresses of this machine under one port stand for two pods.
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	other, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Skip("no second loopback address:", err)
	}
	for i, ln := range []net.Listener{ln, other} {
		web := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, "a %d\n", i) })}
		go func() { _ = web.Serve(ln) }()
		defer web.Close()
	}
	target := Target{Job: "j", URL: "http://pods:" + port, Labels: map[string]string{"pool": "p"}}
	u, err := target.address()
	if err != nil {
		t.Fatal(err)
	}
	at := map[string]*scraper{}
	for _, c := range []struct {
		says      string
		addresses []string
		fails     error
		up, count string // of what they publish
	}{
		{"each address is a target", []string{"127.0.0.1", "127.0.0.2"}, nil, `{"job":"j","pool":"p"} 2`, "{} 1"},
		{"one that left is gone", []string{"127.0.0.2"}, nil, `{"job":"j","pool":"p"} 1`, "{} 1"},
		{"a resolver that is down changes nothing", nil, errors.New("no answer"), `{"job":"j","pool":"p"} 1`, "{} 1"},
		{"a name without addresses has no targets", nil, &net.DNSError{IsNotFound: true}, "", ""},
		{"an address may come again", []string{"127.0.0.1"}, nil, `{"job":"j","pool":"p"} 1`, "{} 0"},
	} {
		now.at += time.Second
		addresses, fails = c.addresses, c.fails
		s.lookUp(target, u, at)
		if err := s.ScrapeNow(t.Context()); err != nil {
			t.Errorf("%s: %v", c.says, err)
		}
		now.at += 100 * time.Millisecond
		if got := ask(t, s, "count by (job, pool)(up)"); got != c.up {
			t.Errorf("%s: up %s, want %s", c.says, got, c.up)
		}
		if got := ask(t, s, "sum(a)"); got != c.count {
			t.Errorf("%s: the pages say %s, want %s", c.says, got, c.count)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestNamesAreFollowed: the first look comes with the server, and a name that cannot be one is refused.
func TestNamesAreFollowed(t *testing.T) {
	asked := make(chan string, 1)
	s := serve(t, Config{Interval: time.Hour, Names: []Target{{Job: "j", URL: "pods:1"}}, Lookup: func(_ context.Context, name string) ([]string, error) {
		asked <- name
		return nil, nil
	}})
	if got := <-asked; got != "pods" {
		t.Errorf("looked up %q", got)
	}
	s.Close()
	if s, err := Serve(Config{Addr: "127.0.0.1:0", Names: []Target{{Job: "j", URL: "ftp://x"}}}); err == nil {
		s.Close()
		t.Error("a name with a bad scheme was taken")
	}
}
