// Package redisq keeps the Async Processor's messages, results, retries and quotas in a Redis-compatible server.
//
//	<queue>  --Pull--> claimed (lease) --Finish--> result list
//	   ^  ^               |   |   \--Retry--> retry set --MoveDue--> <queue>
//	   |  +--Release------+   \--DeadLetter--> <queue>:dead-letter
//	   +-----Reclaim (lease is over)
//
// A message is in exactly one of these places at any time, since each arrow is one script. Whoever has lost its lease can move
// nothing any more: every arrow out of "claimed" compares the owner's token (spec/async-processor.md §1.2). leased.go works so;
// destructive.go takes a message out when it is pulled, as the guide's processor does (§1.1); pubsub.go has channels (§1.4).
package redisq

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Delivery is one message taken from the broker.
type Delivery struct {
	Queue string
	Raw   []byte // as it lies on the broker
	// Handle is the message of a transport whose messages are objects.
	Handle any
	score  string // as the broker wrote it
	claim  string
	owner  string
}

// OpKind says what becomes of a delivery.
type OpKind uint8

// The ends of a delivery.
const (
	Release    OpKind = iota // back into its queue, as it came
	Retry                    // Member into the retry set, due at Due
	Finish                   // Result into the list or channel To; the request is over
	DeadLetter               // aside
)

// Op ends one delivery.
type Op struct {
	Kind     OpKind
	Delivery Delivery
	Member   []byte
	Due      float64 // Unix seconds
	To       string
	TTL      time.Duration // of the list To; 0: none
	Result   []byte
	ID       string // of the request
	Token    string // its generation; "": it has none
}

// Outcome is what became of an Op.
type Outcome struct {
	Done bool  // false without an error: the lease was lost, somebody else ends the message
	Err  error // the broker could not be asked; try again
}

// Refused tells whether an error is the server's own word, so that the command was certainly not carried out.
func Refused(err error) bool {
	var word redis.Error
	return errors.As(err, &word)
}

// CancelKey and ActiveKey are the producer's marks of a request (spec/async-processor.md §1.1).
func CancelKey(id string) string { return "request-cancel:" + id }

// ActiveKey holds the token of the newest generation of a request.
func ActiveKey(id string) string { return "request-active:" + id }

// DeadLetterKey is the list of a queue's unreadable messages.
func DeadLetterKey(queue string) string { return queue + ":dead-letter" }

// Marked asks which requests carry a cancel mark of their own generation. One round trip.
func Marked(ctx context.Context, c redis.Cmdable, ids, tokens []string) ([]bool, error) {
	out := make([]bool, len(ids))
	var keys []string
	var at []int
	for i, id := range ids {
		if tokens[i] != "" {
			keys = append(keys, CancelKey(id))
			at = append(at, i)
		}
	}
	if len(keys) == 0 {
		return out, nil
	}
	values, err := c.MGet(ctx, keys...).Result()
	if err != nil {
		return nil, fmt.Errorf("cancel marks: %w", err)
	}
	for i, v := range values {
		s, _ := v.(string)
		out[at[i]] = s != "" && s == tokens[at[i]]
	}
	return out, nil
}

// NewToken is 16 random bytes in hex.
func NewToken() string { return token(16) }

func token(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// run sends one script call per Op in one pipeline. A server that has forgotten the scripts is given them again.
func run(ctx context.Context, c *redis.Client, scripts []*redis.Script, call func(p redis.Pipeliner, i int) *redis.Cmd, n int) []Outcome {
	out := make([]Outcome, n)
	for attempt := range 2 {
		cmds := make([]*redis.Cmd, n)
		pipe := c.Pipeline()
		for i := range n {
			cmds[i] = call(pipe, i)
		}
		_, _ = pipe.Exec(ctx) // each command has its own error
		missing := false
		for i, cmd := range cmds {
			v, err := cmd.Result()
			moved, _ := v.(int64)
			if out[i] = (Outcome{Done: err == nil && moved != 0}); err != nil && !errors.Is(err, redis.Nil) {
				out[i] = Outcome{Err: err}
			}
			missing = missing || err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
		}
		if !missing || attempt > 0 {
			break
		}
		// Calls that were answered must not be made twice, so only a batch that failed as a whole is made again; the caller repeats the others.
		for _, s := range scripts {
			if err := s.Load(ctx, c).Err(); err != nil {
				return out
			}
		}
		for _, o := range out {
			if o.Err == nil {
				return out
			}
		}
	}
	return out
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

func unix(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
