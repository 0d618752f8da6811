package redisq

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// The limits of a client: a broker that is gone is noticed soon, and asked again no more often than the processor's polls ask.
const (
	dialTimeout = 2 * time.Second
	ioTimeout   = 5 * time.Second
)

// NewClient makes a client of the server that a redis:// or rediss:// URL names; nothing is connected yet.
func NewClient(url string) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("redis URL: %w", err)
	}
	return redis.NewClient(Limit(o)), nil
}

// AddressClient makes a client of the server at host:port.
func AddressClient(address string) *redis.Client {
	return redis.NewClient(Limit(&redis.Options{Addr: address}))
}

// silent is the client library's log: every failure comes back as an error, and the callers say more about it.
type silent struct{}

// Printf implements the library's interface.
func (silent) Printf(context.Context, string, ...any) {}

var silence sync.Once

// Limit sets what all clients have in common. The protocol is RESP2, which every compatible server speaks and in which scripts see the
// same types everywhere.
func Limit(o *redis.Options) *redis.Options {
	silence.Do(func() { redis.SetLogger(silent{}) })
	o.Protocol = 2
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = dialTimeout, ioTimeout, ioTimeout
	o.MaxRetries = -1 // a script that moved something must not be sent again unseen; the callers know what may be repeated
	// Notifications of a managed service's maintenance need RESP3, and a name lookup to find out about them.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return o
}
