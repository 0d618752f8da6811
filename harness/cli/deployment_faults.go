package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/llm-weir/weir/harness/env/cluster"
	"github.com/llm-weir/weir/harness/verdict"
)

// canFail puts each fault into the deployment, and wants the requirement meant for it to fail.
func (c *certifyDeploymentCmd) canFail(con *console) error {
	client, err := c.connect(con.ctx, c.Env)
	if err != nil {
		return err
	}
	var alive []string
	for _, f := range cluster.Faults {
		own := *c
		own.Faults, own.Focus, own.Skip, own.Out = false, f.Requirement, "", filepath.Join(c.Out, f.Name)
		fmt.Fprintf(con.out, "\n%s: %s\n", f.Name, f.Says)
		restore, err := f.Put(con.ctx, client, c.Namespace)
		if err == nil {
			err = own.outside(con)
		}
		if restore != nil {
			err = errors.Join(ranAnyway(err), restore(context.WithoutCancel(con.ctx)))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		_, results, err := judged(own.Out, false)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		if !slices.Contains(verdict.IDs(results, verdict.Fail), f.Requirement) {
			alive = append(alive, f.Name)
		}
	}
	if len(alive) > 0 {
		return &exitError{status: ExitFail, text: "no requirement failed: " + strings.Join(alive, ", ")}
	}
	fmt.Fprintf(con.out, "\nall %d faults were found\n", len(cluster.Faults))
	return nil
}

// ranAnyway leaves out the status with which a run ends whose verdict is another one than pass: that is what is asked for.
func ranAnyway(err error) error {
	var ended *exitError
	if errors.As(err, &ended) && ended.status != ExitInterrupted && ended.text == "" {
		return nil
	}
	return err
}
