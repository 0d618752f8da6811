package engine

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// check compares everything countable inside e.
func check(t *rapid.T, e *Engine) {
	blocks, waiting := 0, 0
	for _, i := range e.running {
		s := &e.slots[i]
		blocks += s.blocks
		if !s.isRunning || s.computed+s.chunk > s.total() || s.blocks < ceilDiv(s.computed+s.chunk, e.cfg.BlockSize) {
			t.Fatalf("running request %+v", *s)
		}
	}
	for i := e.waitHead; i != none; i = e.slots[i].next {
		waiting++
		if s := &e.slots[i]; s.blocks != 0 || s.computed != 0 || s.isRunning {
			t.Fatalf("waiting request holds something: %+v", *s)
		}
	}
	s := e.Stats()
	if waiting != s.Waiting {
		t.Fatalf("queue holds %d, counter says %d", waiting, s.Waiting)
	}
	if blocks+s.FreeBlocks != e.cfg.NumBlocks-1 || s.FreeBlocks < 0 {
		t.Fatalf("%d blocks held, %d free, of %d", blocks, s.FreeBlocks, e.cfg.NumBlocks-1)
	}
	if s.Submitted != uint64(s.Running+s.Waiting)+s.FinishedStop+s.FinishedLength+s.FinishedAbort {
		t.Fatalf("requests lost: %+v", s)
	}
	if s.LastBatch.Tokens > e.cfg.MaxNumBatchedTokens || s.Running > e.cfg.MaxNumSeqs {
		t.Fatalf("over the limits: %+v", s)
	}
	if stepping(e) && (s.LastBatch.Seqs == 0 || s.LastBatch.Tokens < s.LastBatch.Seqs) {
		t.Fatalf("a step with nothing in it: %+v", s)
	}
	if !stepping(e) && s.Running+s.Waiting > 0 {
		t.Fatalf("idle with work: %+v", s)
	}
}

// history checks that every request's tokens come once and in order and that nothing follows its end.
type history struct {
	tokens, limit map[uint64]int
	ended         map[uint64]OutKind
	at            time.Duration
}

func (h *history) add(t *rapid.T, outs []Out) {
	for _, o := range outs {
		if o.At < h.at {
			t.Fatalf("time goes back to %v from %v", o.At, h.at)
		}
		h.at = o.At
		if k, ok := h.ended[o.ID]; ok && o.Kind != Refused {
			t.Fatalf("%+v after its end by %v", o, k)
		}
		switch o.Kind {
		case FirstToken, Token:
			h.tokens[o.ID]++
			if h.tokens[o.ID] != o.Tokens || (o.Tokens == 1) != (o.Kind == FirstToken) {
				t.Fatalf("%+v is token %d", o, h.tokens[o.ID])
			}
		case Finished:
			if o.Tokens != h.limit[o.ID] || h.tokens[o.ID] != o.Tokens {
				t.Fatalf("%+v with %d tokens delivered, want %d", o, h.tokens[o.ID], h.limit[o.ID])
			}
			h.ended[o.ID] = o.Kind
		case Aborted:
			h.ended[o.ID] = o.Kind
		}
	}
}

func TestInvariantsUnderRandomLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := small()
		c.MaxNumSeqs = rapid.IntRange(1, 12).Draw(t, "seqs")
		c.MaxNumBatchedTokens = c.MaxNumSeqs + rapid.IntRange(0, 100).Draw(t, "budget")
		c.BlockSize = rapid.SampledFrom([]int{1, 4, 16}).Draw(t, "block")
		c.MaxModelLen = rapid.IntRange(2, 200).Draw(t, "len")
		c.NumBlocks = 1 + ceilDiv(c.MaxModelLen, c.BlockSize) + rapid.IntRange(0, 40).Draw(t, "extra blocks")
		c.AdmitByChunk = rapid.Bool().Draw(t, "admit by chunk")
		c.LongPrefillTokenThreshold = rapid.IntRange(0, 30).Draw(t, "long")
		e, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		h := history{map[uint64]int{}, map[uint64]int{}, map[uint64]OutKind{}, 0}
		now, next := time.Duration(0), uint64(1)
		for range rapid.IntRange(1, 150).Draw(t, "events") {
			if rapid.Bool().Draw(t, "at deadline") {
				if end, ok := e.Deadline(); ok {
					now = max(now, end)
				}
			} else {
				now += time.Duration(rapid.IntRange(0, 40).Draw(t, "gap ms")) * time.Millisecond
			}
			var ev Event
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0, 1, 2:
				ev = Event{Kind: Admit, ID: next, PromptTokens: rapid.IntRange(1, c.MaxModelLen-1).Draw(t, "prompt"),
					OutputTokens: rapid.IntRange(0, 80).Draw(t, "output"), MaxTokens: rapid.IntRange(0, 80).Draw(t, "max")}
				h.limit[next] = c.MaxModelLen - ev.PromptTokens
				for _, l := range []int{ev.OutputTokens, ev.MaxTokens} {
					if l > 0 {
						h.limit[next] = min(h.limit[next], l)
					}
				}
				next++
			case 3:
				ev = Event{Kind: Abort, ID: uint64(rapid.IntRange(0, int(next)).Draw(t, "victim"))}
			}
			h.add(t, e.Step(now, ev, nil))
			check(t, e)
		}
		for n := 0; stepping(e); n++ {
			if n > 1_000_000 {
				t.Fatalf("no end: %+v", e.Stats())
			}
			end, _ := e.Deadline()
			h.add(t, e.Step(end, Event{}, nil))
			check(t, e)
		}
		if s := e.Stats(); s.FreeBlocks != c.NumBlocks-1 || len(h.ended) != int(next-1) || len(e.byID) != 0 {
			t.Fatalf("%d of %d requests ended, stats %+v", len(h.ended), next-1, s)
		}
	})
}
