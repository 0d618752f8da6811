package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/llm-weir/weir/harness/env/cluster"
	"github.com/llm-weir/weir/harness/verdict"
)

// faultySettle is how long a part of a deployment with a fault has to be there again, most of which never are.
const faultySettle = 30 * time.Second

// canFail puts each fault into the deployment, and wants the requirement meant for it to fail.
func (c *certifyDeploymentCmd) canFail(con *console) error {
	client, err := c.connect(con.ctx, c.Env)
	if err != nil {
		return err
	}
	which, err := compile("--only", c.Only)
	if err != nil {
		return err
	}
	faults := slices.DeleteFunc(slices.Clone(cluster.Faults), func(f cluster.Fault) bool { return which != nil && !which.MatchString(f.Name) })
	if len(faults) == 0 {
		return fmt.Errorf("--only %s: no fault has such a name", c.Only)
	}
	var alive []string
	for _, f := range faults {
		own := *c
		own.Faults, own.Only, own.Focus, own.Skip, own.Out = false, "", "^("+strings.Join(f.Requirements, "|")+")$", "", filepath.Join(c.Out, f.Name)
		if own.SettleLimit == 0 {
			own.SettleLimit = faultySettle
		}
		fmt.Fprintf(con.out, "\n%s: %s\n", f.Name, f.Says)
		restore, err := f.Put(con.ctx, client, c.Namespace)
		if err == nil {
			err = own.outside(con)
		}
		err = errors.Join(ranAnyway(err), restore(context.WithoutCancel(con.ctx)))
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		_, results, err := judged(own.Out, false)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		failed := verdict.IDs(results, verdict.Fail)
		for _, id := range f.Requirements {
			if !slices.Contains(failed, id) {
				alive = append(alive, f.Name+" ("+id+")")
			}
		}
	}
	if len(alive) > 0 {
		return &exitError{status: ExitFail, text: "not found: " + strings.Join(alive, ", ")}
	}
	fmt.Fprintf(con.out, "\nall %d faults were found\n", len(faults))
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
