// Command bench measures a picker process over ext_proc and prints its figures beside their targets, as Markdown.
//
//	load client --ext_proc, loopback--> picker process <--scrapes-- model servers' pages
//	   counts, times                       its CPU time              (of this process)
//
// The picker is a process of its own, so that its CPU time is nobody else's. A target that is missed is a figure like any other: the
// exit status says only whether everything could be measured.
//
//	process.go   the processes and their CPU time     drain.go     a backlog that leaves
//	client.go    the load client                      overshoot.go how much runs at a time
//	servers.go   the model servers                    steady.go    CPU by request, idle CPU, the metrics page
//	canned.go    a server that is no picker           table.go     targets and figures
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	bin := flag.String("picker", "bin/weir", "binary whose command picker is measured")
	canned := flag.Bool("canned", false, "serve canned answers until interrupted, in place of measuring")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *canned {
		return serveCanned(ctx)
	}
	return measure(ctx, *bin)
}

// measure runs every measurement and prints the table.
func measure(ctx context.Context, bin string) error {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	f, err := startFleet(8)
	if err != nil {
		return err
	}
	defer f.close()
	b := &bench{bin: bin, dir: dir, fleet: f}
	for _, part := range []struct {
		what string
		run  func(context.Context) ([]row, error)
	}{
		{"steady load, idle, page", b.steady}, {"drain", b.drains}, {"bursts", b.bursts}, {"metric samples", b.samples},
	} {
		fmt.Fprintln(os.Stderr, "measuring:", part.what)
		rows, err := part.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", part.what, err)
		}
		b.rows = append(b.rows, rows...)
	}
	printTable(os.Stdout, b.rows)
	return nil
}

// bench is what the measurements share.
type bench struct {
	bin, dir string
	fleet    *fleet
	rows     []row
}
