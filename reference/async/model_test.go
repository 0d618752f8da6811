package async

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestLanesAgainstModel compares the order in which messages are sent with a list that is searched from the front: lowest lane, then the
// queue whose last turn in that lane is longest ago, then the order of the queues, then age (AP-TIER-01, AP-TIER-04).
func TestLanesAgainstModel(t *testing.T) {
	type waiting struct {
		id    MessageID
		queue int
		lane  int
	}
	rapid.Check(t, func(t *rapid.T) {
		m, err := New(Config{Pools: []PoolConfig{{Name: "p", Workers: 1}}, Merge: MergeConfig{Kind: TierPriority, TierLabel: "tier"}})
		if err != nil {
			t.Fatal(err)
		}
		for q := range 3 {
			m.Step(0, Event{Kind: AddQueue, Queue: QueueKey(q + 1), QueueConfig: QueueConfig{Name: fmt.Sprint(q), Pool: "p", BaseURL: "http://gw", Push: true}}, nil)
		}
		var list []waiting
		var turn [3][Lanes]int
		turns, busy := 0, MessageID(0)
		sent := func(outs []Out) (ids []MessageID) {
			for _, o := range outs {
				if o.Kind == Send {
					ids = append(ids, o.ID)
				}
			}
			return ids
		}
		for id := MessageID(1); id < 60; id++ {
			var got []MessageID
			if busy != 0 && rapid.Bool().Draw(t, "answer") {
				got = sent(m.Step(0, Event{Kind: Response, ID: busy, Response: Answer{Status: 200}}, nil))
				busy = 0
			} else {
				q, tier := pick(t, "queue", 3), pick(t, "tier", 4)
				a := args{"label:tier": []string{TierInteractive, TierAsync, TierBatch, "gold"}[tier]}
				got = sent(m.Step(0, Event{Kind: Pulled, Queue: QueueKey(q + 1), Messages: []Message{message1(id, a)}}, nil))
				list = append(list, waiting{id, q, 3 + min(tier, 2)})
			}
			var want []MessageID
			if busy == 0 && len(list) > 0 {
				best := 0
				for i, x := range list {
					b := list[best]
					before, after := turn[x.queue][x.lane], turn[b.queue][b.lane]
					if x.lane < b.lane || x.lane == b.lane && (before < after || before == after && x.queue < b.queue) {
						best = i
					}
				}
				x := list[best]
				turns++
				turn[x.queue][x.lane] = turns
				list = append(list[:best], list[best+1:]...)
				busy = x.id
				want = []MessageID{x.id}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("sent %v, want %v", got, want)
			}
		}
	})
}

// TestBackoffEnvelope checks the bounds of every delay and that they are met (AP-RETRY-04).
func TestBackoffEnvelope(t *testing.T) {
	for k, top := range []time.Duration{1: 4, 2: 8, 3: 16, 4: 32, 5: 60, 6: 60, 70: 60} {
		if top == 0 {
			continue
		}
		top *= time.Second
		if low, high := backoff(k, time.Hour, 0), backoff(k, time.Hour, 0.9999999); low != top/2 || high >= top || high < top-time.Millisecond {
			t.Errorf("attempt %d: %v to %v, want [%v, %v)", k, low, high, top/2, top)
		}
		if d := backoff(k, 3*time.Second, 0.9999999); d >= 3*time.Second {
			t.Errorf("attempt %d: %v is not before the deadline", k, d)
		}
	}
}

// TestRandomRobinShares: while two queues are backlogged each gets half, give or take a tenth (AP-MERGE-02).
func TestRandomRobinShares(t *testing.T) {
	m, err := New(Config{Seed: 7, Pools: []PoolConfig{{Name: "p", Workers: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	id, first := MessageID(0), 0
	for q := QueueKey(1); q <= 2; q++ {
		m.Step(0, Event{Kind: AddQueue, Queue: q, QueueConfig: QueueConfig{Name: "q", Pool: "p", BaseURL: "http://gw", Push: true}}, nil)
		for range 500 {
			id++
			m.Step(0, Event{Kind: Pulled, Queue: q, Messages: []Message{message1(id, args{})}}, nil)
		}
	}
	current := MessageID(1)
	for range 400 {
		for _, o := range m.Step(0, Event{Kind: Response, ID: current, Response: Answer{Status: 200}}, nil) {
			if o.Kind == Send {
				current = o.ID
				if o.Queue == 1 {
					first++
				}
			}
		}
	}
	if first < 160 || first > 240 {
		t.Errorf("%d of 400 from the first queue", first)
	}
}

// TestFarDeadlines: deadlines that no offset can hold are as far away as one goes (AP-DL-05).
func TestFarDeadlines(t *testing.T) {
	for _, epoch := range []int64{0, 1764044000e9, -1e18} {
		m, err := New(Config{EpochUnix: epoch, Pools: []PoolConfig{{Name: "p", Workers: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []int64{23472348233323, 9999999999, 1 << 62, 1764045130} {
			if d := m.unixToOffset(s); d <= 0 {
				t.Errorf("epoch %d: %d seconds are %v", epoch, s, d)
			}
		}
		if d := m.unixToOffset(-1 << 62); d >= 0 {
			t.Errorf("epoch %d: %v", epoch, d)
		}
	}
}

// TestRetryAfter reads both forms of the header; an instant in the past is none (AP-RETRY-06).
func TestRetryAfter(t *testing.T) {
	epoch := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for header, want := range map[string]time.Duration{
		"": 0, "9": 9 * time.Second, " 9 ": 9 * time.Second, "-1": 0, "0": 0, "soon": 0, "1.5": 0, "99999999999999": 9223372036 * time.Second,
		"Sun, 01 Mar 2026 12:00:30 GMT": 20 * time.Second, "Sunday, 01-Mar-26 12:00:30 GMT": 20 * time.Second, "Sun Mar  1 12:00:30 2026": 20 * time.Second,
		"Sun, 01 Mar 2026 12:00:05 GMT": 0,
	} {
		got, ok := retryAfter(header, 10*time.Second, epoch.UnixNano())
		if ok != (want > 0) || ok && got != want {
			t.Errorf("%q: %v, %v, want %v", header, got, ok, want)
		}
	}
}
