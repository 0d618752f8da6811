package flowcontrol

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestQueueAgainstSorting: after any pushes and removals a queue gives its entries in the order of a stable sort by rank
// (FC-ORD-01, FC-ORD-04, FC-ORD-06).
func TestQueueAgainstSorting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Ordering(rapid.IntRange(0, 2).Draw(t, "ordering"))
		var q queue
		var want []*Entry
		for i := range rapid.IntRange(0, 60).Draw(t, "operations") {
			if len(want) > 0 && rapid.IntRange(0, 2).Draw(t, "remove") == 0 {
				k := rapid.IntRange(0, len(want)-1).Draw(t, "which")
				q.remove(want[k], o)
				want = slices.Delete(want, k, k+1)
				continue
			}
			e := &Entry{seq: uint64(i)}
			if o != FCFS {
				e.key = rapid.Int64Range(0, 9).Draw(t, "key")
			}
			q.push(e, o)
			want = append(want, e)
		}
		slices.SortStableFunc(want, func(a, b *Entry) int { return int(a.key - b.key) })
		for i, e := range want {
			if got := q.head(o); got != e {
				t.Fatalf("place %d: %+v, want %+v", i, got, e)
			}
			q.remove(e, o)
		}
		if q.head(o) != nil {
			t.Fatal("queue is not empty")
		}
	})
}

func TestRank(t *testing.T) {
	for _, tc := range []struct {
		why  string
		o    Ordering
		e    Entry
		ttl  time.Duration
		want int64
	}{
		{"fcfs ranks nobody", FCFS, Entry{entered: 5}, 9, 0},
		{"edf: entry plus limit (FC-ORD-04)", EDF, Entry{entered: 5}, 9, 14},
		{"edf: the shorter of the two limits (FC-ORD-05)", EDF, Entry{entered: 5, Request: Request{TTL: 3}}, 9, 8},
		{"edf: own limit alone", EDF, Entry{entered: 5, Request: Request{TTL: 3}}, 0, 8},
		{"edf: no limit sorts last", EDF, Entry{entered: 5}, 0, math.MaxInt64},
		{"slo: received plus target (FC-ORD-07)", SLODeadline, Entry{entered: 50, Request: Request{Received: 40, TTFT: 7, HasTTFT: true}}, 9, 47},
		{"slo: no target sorts last (FC-ORD-08)", SLODeadline, Entry{entered: 50, Request: Request{Received: 40, TTFT: 7}}, 9, math.MaxInt64},
		{"slo: a negative target is none", SLODeadline, Entry{Request: Request{TTFT: -1, HasTTFT: true}}, 9, math.MaxInt64},
		{"slo: an overflowing sum does not wrap", SLODeadline, Entry{Request: Request{Received: 2, TTFT: math.MaxInt64 - 1, HasTTFT: true}}, 9, math.MaxInt64},
	} {
		if got := rank(tc.o, &tc.e, tc.ttl); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.why, got, tc.want)
		}
	}
}
