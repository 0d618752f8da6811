package embedded

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/llm-weir/weir/harness/clock"
)

func start(t testing.TB) (*Broker, *redis.Client) {
	t.Helper()
	b, err := Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	c := redis.NewClient(&redis.Options{Addr: b.Addr(), Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return b, c
}

func TestExpires(t *testing.T) {
	_, c := start(t)
	const life = 2 * time.Second
	began := clock.NewReal()
	for name, ttl := range map[string]time.Duration{"short": life, "long": time.Hour, "forever": 0} {
		if err := c.Set(t.Context(), name, "x", ttl).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.HSet(t.Context(), "hash", "a", 1).Err(); err != nil {
		t.Fatal(err)
	}
	for c.Exists(t.Context(), "short").Val() == 1 {
		if began.Now() > 10*time.Second {
			t.Fatal("the key lives after ten seconds")
		}
		clock.Sleep(t.Context(), time.Millisecond)
	}
	if lived := began.Now(); lived < life/2 { // a step that comes late takes its whole length off keys that are younger
		t.Errorf("it lived for %s of %s", lived, life)
	}
	if n := c.Exists(t.Context(), "long", "forever", "hash").Val(); n != 3 {
		t.Errorf("%d of 3 others live", n)
	}
	if left := c.PTTL(t.Context(), "long").Val(); left > time.Hour-life/2 || left < time.Hour-time.Minute {
		t.Errorf("the long one has %s left", left)
	}
}

func TestAddressTaken(t *testing.T) {
	b, _ := start(t)
	if other, err := Start(b.Addr()); err == nil {
		other.Close()
		t.Error("a second broker took the same address")
	}
}

// BenchmarkScript runs a script of four commands beside keys that wait, as a request among others does.
func BenchmarkScript(b *testing.B) {
	for _, keys := range []int{0, 1000, 10_000} {
		b.Run("keys="+strconv.Itoa(keys), func(b *testing.B) {
			_, c := start(b)
			for i := range keys {
				if err := c.HSet(b.Context(), fmt.Sprint("key-", i), "field", i).Err(); err != nil {
					b.Fatal(err)
				}
			}
			script := redis.NewScript(`redis.call('HSET', KEYS[1], 'a', 1) redis.call('HGET', KEYS[1], 'a') redis.call('ZADD', KEYS[2], 1, 'm') return redis.call('ZREM', KEYS[2], 'm')`)
			b.ResetTimer()
			for b.Loop() {
				if err := script.Run(b.Context(), c, []string{"h", "z"}).Err(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
