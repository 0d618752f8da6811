package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/harness/clock"
	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/redisq"
)

type brokerFlags struct {
	RedisURL string `name:"redis-url" env:"REDIS_URL" default:"redis://127.0.0.1:6379" help:"Broker of the processor."`
}

// client connects, so that a wrong address is a clear error.
func (b brokerFlags) client(ctx context.Context) (*redis.Client, error) {
	c, err := redisq.NewClient(b.RedisURL)
	if err != nil {
		return nil, fmt.Errorf("--redis-url: %w", err)
	}
	if err := c.Ping(ctx).Err(); err != nil {
		return nil, fmt.Errorf("--redis-url: the broker does not answer: %w (weir up --async starts one, another is named by --redis-url or $REDIS_URL)", err)
	}
	return c, nil
}

type enqueueCmd struct {
	brokerFlags
	Queue       string            `default:"request-sortedset" help:"Sorted set of the requests."`
	N           int               `short:"n" default:"1" help:"How many requests."`
	Deadline    time.Duration     `default:"10m" help:"Time until the deadline, at least a second."`
	Model       string            `default:"model" help:"Model in the payload."`
	Prompt      string            `default:"Hello" help:"Prompt in the payload; {i} is the number of the request."`
	Payload     string            `placeholder:"JSON" help:"Payload in place of model and prompt; {i} is the number of the request."`
	File        string            `type:"existingfile" help:"Requests, one JSON object a line: at least a payload, and id, metadata, headers, endpoint as wanted."`
	ID          string            `name:"id-prefix" help:"Beginning of the ids; default: a random one."`
	Metadata    map[string]string `placeholder:"KEY=VALUE" help:"Metadata of each request, such as userid=alice."`
	Headers     map[string]string `name:"header" placeholder:"NAME=VALUE" help:"HTTP headers of each request."`
	Endpoint    string            `help:"Path in place of the queue's."`
	Publish     bool              `help:"The queue is a channel of redis-pubsub."`
	ResultQueue string            `help:"List for the results, unless the queue has its own."`
}

// Help is the long help of the command.
func (enqueueCmd) Help() string {
	return `It prints the id of each request, and the token with which it can be cancelled.

Examples:
  weir enqueue --queue batch -n 100
  weir enqueue --queue batch --prompt 'Summarize document {i}.' -n 3 --metadata userid=alice --deadline 1h
  weir enqueue --queue batch --payload '{"model":"m","prompt":"hi","max_tokens":5}'
  weir enqueue --queue batch --file requests.ndjson
  weir enqueue --publish --queue request-queue                              for a processor with --transport redis-pubsub`
}

// Run submits the requests.
func (c *enqueueCmd) Run(con *console) error {
	requests, err := c.requests()
	if err != nil {
		return err
	}
	client, err := c.client(con.ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // everything was answered
	for i := range requests {
		token, err := c.submit(con.ctx, client, requests[i])
		if err != nil {
			return fmt.Errorf("after %d of %d requests: %w", i, len(requests), err)
		}
		fmt.Fprintf(con.out, "%s %s\n", requests[i].ID, token)
	}
	fmt.Fprintf(con.err, "%d requests submitted to %s\n", len(requests), c.Queue)
	return nil
}

// submit gives the token of the request, "-" where there is none.
func (c *enqueueCmd) submit(ctx context.Context, client *redis.Client, r async.Request) (string, error) {
	if !c.Publish {
		return redisq.Submit(ctx, client, c.Queue, c.ResultQueue, r, clock.Wall())
	}
	heard, err := redisq.Publish(ctx, client, c.Queue, r)
	if err == nil && heard == 0 {
		err = fmt.Errorf("nobody listens to the channel %q, the request is lost: start the processor first", c.Queue)
	}
	return "-", err
}

// requests makes what is to be submitted.
func (c *enqueueCmd) requests() ([]async.Request, error) {
	if c.Deadline < time.Second {
		return nil, fmt.Errorf("--deadline: %v is too short, deadlines are whole seconds", c.Deadline)
	}
	if c.N < 1 {
		return nil, fmt.Errorf("-n: must be positive, got %d", c.N)
	}
	prefix := c.ID
	if prefix == "" {
		prefix = redisq.NewToken()[:8]
	}
	complete := func(r async.Request, i int) async.Request {
		if r.ID == "" {
			r.ID = fmt.Sprintf("%s-%d", prefix, i)
		}
		now := clock.Wall()
		r.Created, r.Deadline = now.Unix(), now.Add(c.Deadline).Unix()
		if r.Metadata == nil {
			r.Metadata = c.Metadata
		}
		if r.Headers == nil {
			r.Headers = c.Headers
		}
		if r.Endpoint == "" {
			r.Endpoint = c.Endpoint
		}
		return r
	}
	if c.File != "" {
		return c.read(complete)
	}
	var out []async.Request
	for i := range c.N {
		number := fmt.Sprint(i)
		payload := []byte(strings.ReplaceAll(c.Payload, "{i}", number))
		if c.Payload == "" {
			var err error
			if payload, err = json.Marshal(map[string]string{"model": c.Model, "prompt": strings.ReplaceAll(c.Prompt, "{i}", number)}); err != nil {
				return nil, fmt.Errorf("payload: %w", err)
			}
		}
		if !json.Valid(payload) {
			return nil, fmt.Errorf("--payload: is no JSON: %s", payload)
		}
		out = append(out, complete(async.Request{Payload: payload}, i))
	}
	return out, nil
}

// read reads the file; all wrong lines are named.
func (c *enqueueCmd) read(complete func(async.Request, int) async.Request) ([]async.Request, error) {
	f, err := os.Open(c.File)
	if err != nil {
		return nil, fmt.Errorf("--file: %w", err)
	}
	defer f.Close()
	var out []async.Request
	var errs []error
	lines := bufio.NewReader(f)
	for line := 1; ; line++ {
		text, err := lines.ReadString('\n')
		if strings.TrimSpace(text) != "" {
			var r async.Request
			if bad := json.Unmarshal([]byte(text), &r); bad != nil {
				errs = append(errs, fmt.Errorf("%s:%d: %w", c.File, line, bad))
			} else {
				out = append(out, complete(r, len(out)))
			}
		}
		if errors.Is(err, io.EOF) {
			return out, errors.Join(errs...)
		}
		if err != nil {
			return nil, fmt.Errorf("--file: %w", err)
		}
	}
}

type resultsCmd struct {
	brokerFlags
	List      string        `default:"result-list" help:"Result list."`
	Subscribe bool          `help:"The list is a channel of redis-pubsub, of which only what comes from now on can be seen; implies --follow."`
	Follow    bool          `short:"f" help:"Wait for more until interrupted, or until -n are there."`
	N         int           `short:"n" help:"End after so many; 0: all that are there."`
	Wait      time.Duration `default:"0s" help:"Without --follow: wait so long for the next one."`
}

// Help is the long help of the command.
func (resultsCmd) Help() string {
	return `It takes results out of the list, the oldest first, and prints each as one line of JSON.

Examples:
  weir results                         what is there
  weir results --follow -n 100         until 100 have come
  weir results --list my-results --wait 5s
  weir results --subscribe --list result-queue                              for a processor with --transport redis-pubsub`
}

// Run prints results.
func (c *resultsCmd) Run(con *console) error {
	client, err := c.client(con.ctx)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // everything was answered
	next := func() ([]byte, error) { return c.next(con.ctx, client) }
	if c.Subscribe {
		sub := client.Subscribe(con.ctx, c.List)
		defer func() { _ = sub.Close() }() // nothing can be done about it
		c.Follow, next = true, func() ([]byte, error) {
			m, err := sub.ReceiveMessage(con.ctx)
			if err != nil {
				return nil, fmt.Errorf("channel %q: %w", c.List, err)
			}
			return []byte(m.Payload), nil
		}
	}
	got := 0
	for c.N == 0 || got < c.N {
		text, err := next()
		if err != nil {
			if con.ctx.Err() != nil {
				break
			}
			return err
		}
		if text == nil {
			if !c.Follow {
				break
			}
			continue
		}
		got++
		if _, err := fmt.Fprintf(con.out, "%s\n", text); err != nil {
			return err
		}
	}
	fmt.Fprintf(con.err, "%d results\n", got)
	if con.ctx.Err() != nil && c.N > 0 {
		return &exitError{status: ExitInterrupted}
	}
	return nil
}

// followWait is how long one question to the broker waits.
const followWait = 2 * time.Second

func (c *resultsCmd) next(ctx context.Context, client *redis.Client) ([]byte, error) {
	switch {
	case c.Follow:
		return redisq.Receive(ctx, client, c.List, followWait)
	case c.Wait > 0:
		return redisq.Receive(ctx, client, c.List, min(c.Wait, 4*time.Second))
	}
	v, err := client.RPop(ctx, c.List).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("results of %q: %w", c.List, err)
	}
	return v, nil
}
