package redisq

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/llm-weir/weir/reference/async"
	"github.com/llm-weir/weir/reference/redisq/redistest"
)

// each runs a test on the embedded server, and on redis-server where there is one.
func each(t *testing.T, f func(t *testing.T, c *redis.Client)) {
	t.Run("miniredis", func(t *testing.T) {
		c := AddressClient(miniredis.RunT(t).Addr())
		t.Cleanup(func() { c.Close() })
		f(t, c)
	})
	t.Run("redis-server", func(t *testing.T) {
		c := AddressClient(redistest.Start(t).Addr())
		t.Cleanup(func() { c.Close() })
		f(t, c)
	})
}

var ctx = context.Background()

func add(t testing.TB, c *redis.Client, queue string, members ...string) {
	for i, m := range members {
		if err := c.ZAdd(ctx, queue, redis.Z{Score: float64(1e10 + i), Member: m}).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func raws(ds []Delivery) string {
	var out []string
	for _, d := range ds {
		out = append(out, string(d.Raw))
	}
	return strings.Join(out, " ")
}

// expire makes every lease of a queue end now.
func expire(t testing.TB, c *redis.Client, queue string) {
	for _, claim := range c.ZRange(ctx, queue+":claims-idx", 0, -1).Val() {
		if err := c.ZAdd(ctx, queue+":claims-idx", redis.Z{Score: 1, Member: claim}).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLeases(t *testing.T) {
	each(t, func(t *testing.T, c *redis.Client) {
		l := &Leased{Client: c, Lease: time.Minute, Retry: "retries"}
		add(t, c, "q", "a", "b", "c", "d", "e")
		got, err := l.Pull(ctx, "q", 2, 1)
		if err != nil || raws(got) != "b c" {
			t.Fatalf("%v %v", err, raws(got))
		}
		rest, _ := l.Pull(ctx, "q", 9, 0)
		if raws(rest) != "a d e" {
			t.Fatal(raws(rest))
		}
		ops := []Op{
			{Kind: Finish, Delivery: got[0], To: "results", Result: []byte("r1"), TTL: time.Hour, ID: "b", Token: "t"},
			{Kind: Release, Delivery: got[1]},
			{Kind: Retry, Delivery: rest[0], Member: []byte("a2"), Due: 5},
			{Kind: DeadLetter, Delivery: rest[1]},
		}
		c.Set(ctx, CancelKey("b"), "t", 0)
		c.Set(ctx, ActiveKey("b"), "newer", 0)
		for range 2 { // the second time nothing is owned any more
			for i, o := range l.Apply(ctx, ops) {
				if o.Err != nil {
					t.Fatalf("op %d: %v", i, o.Err)
				}
			}
		}
		if n := c.LLen(ctx, "results").Val(); n != 1 || c.TTL(ctx, "results").Val() <= 0 {
			t.Errorf("%d results", n)
		}
		if c.Exists(ctx, CancelKey("b")).Val() != 0 || c.Get(ctx, ActiveKey("b")).Val() != "newer" {
			t.Error("marks of another generation")
		}
		if m := c.ZRangeWithScores(ctx, "q", 0, -1).Val(); len(m) != 1 || m[0].Member != "c" || m[0].Score != 1e10+2 {
			t.Errorf("released %v", m)
		}
		if v := c.LRange(ctx, DeadLetterKey("q"), 0, -1).Val(); len(v) != 1 || v[0] != "d" {
			t.Errorf("dead %v", v)
		}
		if n := c.HLen(ctx, "q:claimed").Val(); n != 1 {
			t.Errorf("%d claims, want that of e", n)
		}
		n, err := l.MoveDue(ctx, 6, func(m string) (string, float64, bool) { return "q", 7, m == "a2" })
		if err != nil || n != 1 || c.ZScore(ctx, "q", "a2").Val() != 7 {
			t.Errorf("moved %d, %v", n, err)
		}
	})
}

// TestFencing: a processor that was away past its lease publishes nothing (AP-DRAIN-06).
func TestFencing(t *testing.T) {
	each(t, func(t *testing.T, c *redis.Client) {
		l := &Leased{Client: c, Lease: time.Minute, Retry: "retries"}
		add(t, c, "q", "a")
		zombie, _ := l.Pull(ctx, "q", 1, 0)
		if lost, err := l.Renew(ctx, zombie); err != nil || len(lost) != 0 {
			t.Fatal(lost, err)
		}
		expire(t, c, "q")
		if n, err := l.Reclaim(ctx, "q"); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		other, _ := l.Pull(ctx, "q", 1, 0)
		for _, kind := range []OpKind{Finish, Release, Retry, DeadLetter} {
			if o := l.Apply(ctx, []Op{{Kind: kind, Delivery: zombie[0], To: "results", Result: []byte("z")}}); o[0].Done || o[0].Err != nil {
				t.Errorf("op %d of the zombie: %+v", kind, o[0])
			}
		}
		if lost, err := l.Renew(ctx, append(zombie, other...)); err != nil || !slices.Equal(lost, []int{0}) {
			t.Errorf("lost %v, %v", lost, err)
		}
		if o := l.Apply(ctx, []Op{{Kind: Finish, Delivery: other[0], To: "results", Result: []byte("o")}}); !o[0].Done {
			t.Errorf("%+v", o)
		}
		if v := c.LRange(ctx, "results", 0, -1).Val(); len(v) != 1 || v[0] != "o" {
			t.Error(v)
		}
	})
}

// TestConservation: whatever two processors do, killed ones included, each message is in exactly one place or has exactly one result.
func TestConservation(t *testing.T) {
	each(t, func(t *testing.T, c *redis.Client) {
		rapid.Check(t, func(t *rapid.T) {
			if err := c.FlushAll(ctx).Err(); err != nil {
				t.Fatal(err)
			}
			l := &Leased{Client: c, Lease: time.Minute, Retry: "retries"}
			var members []string
			for i := range rapid.IntRange(1, 8).Draw(t, "messages") {
				members = append(members, fmt.Sprint("m", i))
				if err := c.ZAdd(ctx, "q", redis.Z{Score: 1e10, Member: members[i]}).Err(); err != nil {
					t.Fatal(err)
				}
			}
			var owned []Delivery
			for range rapid.IntRange(1, 30).Draw(t, "steps") {
				switch rapid.IntRange(0, 6).Draw(t, "step") {
				case 0, 1:
					ds, err := l.Pull(ctx, "q", rapid.IntRange(1, 3).Draw(t, "n"), rapid.IntRange(0, 2).Draw(t, "offset"))
					if err != nil {
						t.Fatal(err)
					}
					owned = append(owned, ds...)
				case 2, 3, 4:
					if len(owned) == 0 {
						continue
					}
					i := rapid.IntRange(0, len(owned)-1).Draw(t, "which")
					d := owned[i] // it stays in the list: a zombie may end it again
					kind := OpKind(rapid.IntRange(0, 2).Draw(t, "kind"))
					if o := l.Apply(ctx, []Op{{Kind: kind, Delivery: d, Member: d.Raw, Due: 1, To: "results", Result: d.Raw}}); o[0].Err != nil {
						t.Fatal(o[0].Err)
					}
				case 5:
					for _, claim := range c.ZRange(ctx, "q:claims-idx", 0, 0).Val() {
						c.ZAdd(ctx, "q:claims-idx", redis.Z{Score: 1, Member: claim})
					}
					if _, err := l.Reclaim(ctx, "q"); err != nil {
						t.Fatal(err)
					}
				default:
					if _, err := l.MoveDue(ctx, 2, func(string) (string, float64, bool) { return "q", 1e10, true }); err != nil {
						t.Fatal(err)
					}
				}
				places := slices.Concat(c.ZRange(ctx, "q", 0, -1).Val(), c.ZRange(ctx, "retries", 0, -1).Val(), c.HVals(ctx, "q:claimed").Val(),
					c.LRange(ctx, "results", 0, -1).Val())
				slices.Sort(places)
				if !slices.Equal(places, members) {
					t.Fatalf("places %v, messages %v", places, members)
				}
				n := c.HLen(ctx, "q:claimed").Val()
				if c.HLen(ctx, "q:claim-owners").Val() != n || c.ZCard(ctx, "q:claims-idx").Val() != n || c.HLen(ctx, "q:claim-scores").Val() != n {
					t.Fatal("the claim structures disagree")
				}
			}
		})
	})
}

// TestForgottenScripts: a server that was restarted knows no scripts.
func TestForgottenScripts(t *testing.T) {
	each(t, func(t *testing.T, c *redis.Client) {
		l := &Leased{Client: c, Lease: time.Minute, Retry: "retries"}
		add(t, c, "q", "a")
		ds, err := l.Pull(ctx, "q", 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		c.ScriptFlush(ctx)
		if o := l.Apply(ctx, []Op{{Kind: Finish, Delivery: ds[0], To: "results", Result: []byte("r")}}); !o[0].Done || o[0].Err != nil {
			t.Errorf("%+v", o)
		}
	})
}

func TestDestructive(t *testing.T) {
	each(t, func(t *testing.T, c *redis.Client) {
		d := &Destructive{Client: c, Retry: "retries"}
		add(t, c, "q", "a", "b", "c", "d")
		ds, err := d.Pull(ctx, "q", 9, 1)
		if err != nil || raws(ds) != "a b c d" {
			t.Fatal(raws(ds), err)
		}
		for i, o := range d.Apply(ctx, []Op{{Kind: Finish, Delivery: ds[0], To: "results", Result: []byte("r"), TTL: time.Hour},
			{Kind: Release, Delivery: ds[1]}, {Kind: Retry, Delivery: ds[2], Member: []byte("c2"), Due: 1}, {Kind: DeadLetter, Delivery: ds[3]}}) {
			if !o.Done || o.Err != nil {
				t.Errorf("op %d: %+v", i, o)
			}
		}
		if c.LLen(ctx, "results").Val() != 1 || c.ZScore(ctx, "q", "b").Val() != 1e10+1 || c.ZCard(ctx, "retries").Val() != 1 ||
			c.LLen(ctx, DeadLetterKey("q")).Val() != 1 {
			t.Error(c.Keys(ctx, "*").Val())
		}
	})
}

// TestConcurrencyQuota: never above the limit, back to 0, no slot given back twice, leaked slots heal (AP-QUOTA-03, -04, -10, -12).
func TestConcurrencyQuota(t *testing.T) {
	each(t, func(t *testing.T, c *redis.Client) {
		q := Quota{Key: "quota:userid:u", Concurrency: true, Limit: 2, Window: time.Minute}
		take := func(holder string, want bool) {
			t.Helper()
			if ok, err := Take(ctx, c, q, holder); ok != want || err != nil {
				t.Fatalf("take %s: %v %v", holder, ok, err)
			}
		}
		take("a", true)
		take("b", true)
		take("c", false)
		for range 3 {
			if err := GiveBack(ctx, c, q, "a"); err != nil {
				t.Fatal(err)
			}
		}
		take("c", true)
		take("d", false)
		if err := Hold(ctx, c, q, []string{"b", "c", "gone"}); err != nil {
			t.Fatal(err)
		}
		if n := c.ZCard(ctx, q.Key+":holders").Val(); n != 2 {
			t.Errorf("%d holders", n)
		}
		c.ZAdd(ctx, q.Key+":holders", redis.Z{Score: 1, Member: "b"}) // its process was killed, and its lease is over
		take("d", true)
		take("e", false)
		GiveBack(ctx, c, q, "b") // a zombie
		take("e", false)
		GiveBack(ctx, c, q, "c")
		GiveBack(ctx, c, q, "d")
		if n := c.Exists(ctx, q.Key).Val(); n != 0 {
			t.Errorf("the counter is still there: %s", c.Get(ctx, q.Key).Val())
		}
	})
}

// TestRateLimit: at most Limit in any window, refusals cost nothing, a refund does count (AP-QUOTA-01, K16).
func TestRateLimit(t *testing.T) {
	m := miniredis.RunT(t)
	c := AddressClient(m.Addr())
	defer c.Close()
	q := Quota{Key: "quota:userid:u", Limit: 2, Window: 5 * time.Second}
	at := time.Unix(1764044000, 0)
	for i, s := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {0, true}, {time.Second, false}, {4999 * time.Millisecond, false}, {5 * time.Second, true}, {5 * time.Second, true}, {6 * time.Second, false}} {
		m.SetTime(at.Add(s.after))
		if ok, err := Take(ctx, c, q, fmt.Sprint(i)); ok != s.want || err != nil {
			t.Errorf("%d: %v %v", i, ok, err)
		}
	}
	GiveBack(ctx, c, q, "5")
	if ok, _ := Take(ctx, c, q, "again"); !ok {
		t.Error("a refunded token is not there")
	}
}

func TestProducer(t *testing.T) {
	each(t, func(t *testing.T, c *redis.Client) {
		now := time.Unix(1764044000, 5e6)
		r := async.Request{ID: "a", Deadline: now.Unix() + 60, Payload: []byte(`{"n":9007199254740993}`)}
		first, err := Submit(ctx, c, "q", "mine", r, now)
		if err != nil {
			t.Fatal(err)
		}
		if err := Cancel(ctx, c, "a", first); err != nil {
			t.Fatal(err)
		}
		marked, err := Marked(ctx, c, []string{"a", "b", "a"}, []string{first, "", "other"})
		if err != nil || !slices.Equal(marked, []bool{true, false, false}) {
			t.Errorf("%v %v", marked, err)
		}
		if _, err = Submit(ctx, c, "q", "", r, now); err != nil {
			t.Fatal(err)
		}
		if marked, _ = Marked(ctx, c, []string{"a"}, []string{first}); marked[0] {
			t.Error("a new submission leaves the cancel mark of the old one")
		}
		r.Deadline = now.Unix()
		if _, err = Submit(ctx, c, "q", "", r, now); err == nil {
			t.Error("a deadline of now is accepted")
		}
		r.ID = ""
		if _, err = Submit(ctx, c, "q", "", r, now); err == nil {
			t.Error("no id is accepted")
		}
	})
	if a, b := Score(1764044000, time.UnixMilli(1000)), Score(1764044000, time.UnixMilli(1001)); a >= b || b >= 1764044001 {
		t.Errorf("scores %v, %v", a, b)
	}
}
