package scheduling

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestPrefixesAgainstList: after any prompts an endpoint has the blocks that a list in order of use would hold, and a prompt's share is
// that of its leading blocks in it.
func TestPrefixesAgainstList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := prefixes{cfg: PrefixConfig{MaxBlocks: rapid.IntRange(1, 6).Draw(t, "blocks"), LRUCapacity: rapid.IntRange(1, 9).Draw(t, "capacity")}}
		var known []uint64 // newest first
		for range rapid.IntRange(1, 40).Draw(t, "prompts") {
			prompt := rapid.SliceOfNDistinct(rapid.Uint64Range(0, 14), 0, 8, rapid.ID).Draw(t, "prompt")
			blocks := prompt[:min(len(prompt), p.cfg.MaxBlocks)]
			n := 0
			for n < len(blocks) && slices.Contains(known, blocks[n]) {
				n++
			}
			want := 0.0
			if len(blocks) > 0 {
				want = float64(n) / float64(len(blocks))
			}
			if got := p.share(3, prompt); got != want {
				t.Fatalf("%v against %v: %v, want %v", prompt, known, got, want)
			}
			if p.share(0, prompt) != 0 || p.share(99, prompt) != 0 {
				t.Fatal("an endpoint knows what it was never sent")
			}
			p.record(3, prompt)
			for _, h := range slices.Backward(blocks[:min(len(blocks), p.cfg.LRUCapacity)]) {
				known = slices.DeleteFunc(known, func(o uint64) bool { return o == h })
				known = slices.Insert(known, 0, h)
			}
			known = known[:min(len(known), p.cfg.LRUCapacity)]
			if len(p.of) > 3 && len(p.of[3].at) != len(known) {
				t.Fatalf("%d blocks, want %v", len(p.of[3].at), known)
			}
		}
		p.forget(3)
		p.forget(99)
		p.forget(-1)
		if p.share(3, known) != 0 {
			t.Fatal("an endpoint that left is remembered")
		}
	})
}

func TestLabelFilter(t *testing.T) {
	for _, tc := range []struct {
		f      LabelFilter
		labels string
		want   bool
	}{
		{LabelFilter{Key: "a"}, "a=1", true},
		{LabelFilter{Key: "a"}, "b=1,a=", true},
		{LabelFilter{Key: "a"}, "", false},
		{LabelFilter{Key: "a"}, "aa=1,b=a", false},
		{LabelFilter{Key: "a", Values: []string{"1", "2"}}, "a=2,b=3", true},
		{LabelFilter{Key: "a", Values: []string{"1", "2"}}, "a=12", false},
		{LabelFilter{Key: "a", Values: []string{"1"}, Missing: true}, "b=1", true},
		{LabelFilter{Key: "a", Values: []string{"1"}, Missing: true}, "a=2", false},
		{LabelFilter{Key: "a", Values: []string{""}}, "a=", true},
		{LabelFilter{Key: "a", Values: []string{"x=y"}}, "a=x=y", true},
	} {
		if got := tc.f.keeps(tc.labels); got != tc.want {
			t.Errorf("%+v keeps %q: %v", tc.f, tc.labels, got)
		}
	}
}
