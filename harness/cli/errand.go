package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/harness/env/cluster/errand"
)

// errandCmd runs another command in a pod, for somebody outside of the cluster.
type errandCmd struct {
	Results string        `default:"/results" type:"path" help:"Folder of what the command leaves behind."`
	Addr    string        `default:":8099" help:"HTTP listener for whoever sent it."`
	Keep    time.Duration `default:"10m" help:"How long the results are kept for whoever sent it."`
	Args    []string      `arg:"" help:"Command of weir and its flags, after --."`
}

// errandKey finds the errand in the context of the command that it runs.
type errandKey struct{}

// Run runs the command and keeps its results until they are taken.
func (c *errandCmd) Run(con *console) error {
	s := errand.NewServer()
	ln, err := net.Listen("tcp", c.Addr)
	if err != nil {
		return fmt.Errorf("errand: %w", err)
	}
	hs := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(ln) }()
	defer hs.Close()
	status := runIn(context.WithValue(con.ctx, errandKey{}, s), c.Args, con.out, con.err)
	if err := s.Done(status, c.Results); err != nil {
		fmt.Fprintln(con.err, "weir: results:", err)
	}
	t := clock.NewReal().Timer(c.Keep)
	defer t.Stop()
	select {
	case <-s.Taken():
	case <-t.C:
		return errors.New("nobody has taken the results")
	case <-con.ctx.Done():
	case err := <-served:
		return fmt.Errorf("errand: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(con.ctx), time.Second)
	defer cancel()
	_ = hs.Shutdown(ctx) // so that the answer gets out
	if status != 0 {
		return &exitError{status: status}
	}
	return nil
}
