package cli

import (
	"fmt"

	"github.com/llm-weir/weir/harness/env/embedded"
)

type redisCmd struct {
	Addr string `default:"127.0.0.1:6379" help:"Listener of the Redis protocol."`
}

// Help is the long help of the command.
func (redisCmd) Help() string {
	return `For tests only: it keeps nothing over a restart, asks for no password, and has a part of Redis' commands. A broker of requests that
matter is a Redis of its own.

Example:
  weir redis --addr :6379
  weir processor --transport redis-sortedset --transport-config '{"url":"redis://127.0.0.1:6379", ...}'`
}

// Run serves until SIGTERM.
func (c *redisCmd) Run(con *console) error {
	b, err := startRedis(c.Addr, "--addr")
	if err != nil {
		return err
	}
	defer b.Close()
	fmt.Fprintf(con.out, "redis ready: redis://%s, for tests only\n", b.Addr())
	<-con.ctx.Done()
	return nil
}

// startRedis starts a broker whose keys expire as those of a real one do. flag says where it listens.
func startRedis(addr, flag string) (*embedded.Broker, error) {
	b, err := embedded.Start(addr)
	if err != nil {
		return nil, fmt.Errorf("broker: %w; choose another address with %s (port 0 takes a free one)", err, flag)
	}
	return b, nil
}
