package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/sim-vllm/presets"
	"github.com/llm-weir/weir/sim-vllm/server"
)

// fleet are model servers as a picker sees them: an address and a metrics page. The load client plays their answers.
type fleet struct {
	addresses []string
	servers   []*http.Server

	mu      sync.Mutex
	waiting map[string]int // by address; what the next page says
	scraped func(address string)
}

// startFleet starts n servers on loopback. Their pages are those of the vLLM simulator, in full length.
func startFleet(n int) (*fleet, error) {
	before, after, err := page()
	if err != nil {
		return nil, err
	}
	f := &fleet{waiting: map[string]int{}}
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			f.close()
			return nil, err
		}
		address := ln.Addr().String()
		s := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			f.mu.Lock()
			waiting := f.waiting[address]
			if f.scraped != nil {
				f.scraped(address)
			}
			f.mu.Unlock()
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = fmt.Fprintf(w, "%s%d%s", before, waiting, after)
		})}
		f.addresses, f.servers = append(f.addresses, address), append(f.servers, s)
		go func() { _ = s.Serve(ln) }() // ends with close
	}
	return f, nil
}

func (f *fleet) close() {
	for _, s := range f.servers {
		s.Close()
	}
}

// page is the page of an idle vLLM simulator, cut where it says how many requests wait.
func page() (before, after []byte, err error) {
	ec, err := presets.Get("h100-llama3.1-8b")
	if err != nil {
		return nil, nil, err
	}
	s, err := server.New(server.Config{Name: "server", Model: "llama", Engine: ec})
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	r, err := http.NewRequest(http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil, nil, err
	}
	var w recorder
	s.Handler().ServeHTTP(&w, r)
	at := bytes.Index(w.Bytes(), []byte("\n"+wire.VLLMWaiting+"{"))
	if at < 0 {
		return nil, nil, errors.New("the simulator's page does not say how many requests wait")
	}
	from := at + bytes.IndexByte(w.Bytes()[at:], '}') + len("} ")
	to := from + bytes.IndexByte(w.Bytes()[from:], '\n')
	if _, err := strconv.ParseFloat(string(w.Bytes()[from:to]), 64); err != nil {
		return nil, nil, fmt.Errorf("the simulator's page: %w", err)
	}
	return bytes.Clone(w.Bytes()[:from]), bytes.Clone(w.Bytes()[to:]), nil
}

// recorder keeps what a handler writes.
type recorder struct {
	bytes.Buffer
	header http.Header
}

func (r *recorder) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

func (r *recorder) WriteHeader(int) {}
