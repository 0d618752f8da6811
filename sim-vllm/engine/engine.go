package engine

import "time"

// none ends a list of slots.
const none int32 = -1

// slot is one request inside the engine.
type slot struct {
	id           uint64
	prompt       int // tokens
	limit        int // output tokens at which it finishes
	generated    int // output tokens so far
	computed     int // tokens of prompt and output whose KV entries exist
	blocks       int // blocks held
	chunk        int // tokens scheduled in the running step, 0: not part of it
	scheduled    time.Duration
	prev, next   int32 // neighbours in the waiting list
	reason       Reason
	isRunning    bool
	aborting     bool
	wasScheduled bool
}

// total is the tokens that exist: prompt and output.
func (s *slot) total() int { return s.prompt + s.generated }

// Engine is one server. It is not safe for concurrent use.
type Engine struct {
	cfg   Config
	slots []slot
	spare []int32          // unused slots
	byID  map[uint64]int32 // looked up, never iterated

	running            []int32 // in order of admission
	waitHead, waitTail int32
	waiting            int

	aborts   []int32 // requests to drop at the next step boundary
	now, end time.Duration
	stepping bool // a step is running and ends at end
	stats    Stats
}

// New makes an idle engine.
func New(c Config) (*Engine, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{cfg: c, byID: map[uint64]int32{}, waitHead: none, waitTail: none}
	e.stats.FreeBlocks = c.NumBlocks - 1
	return e, nil
}

// Step lets time pass until now, then applies ev, and appends what happened to out. Steps that end before now run back to back. A
// step that ends exactly at now ends before ev is applied, so that an arrival at a boundary can join the next step and an abort
// takes effect there. A now before that of an earlier call counts as that one.
func (e *Engine) Step(now time.Duration, ev Event, out []Out) []Out {
	e.now = max(e.now, now)
	for e.stepping && e.end < e.now {
		out = e.complete(out)
		out = e.start(e.end, out)
	}
	if e.stepping && e.end == e.now {
		out = e.complete(out)
	}
	switch ev.Kind {
	case Admit:
		out = e.admit(ev, out)
	case Abort:
		if i, ok := e.byID[ev.ID]; ok && !e.slots[i].aborting {
			e.slots[i].aborting = true
			e.aborts = append(e.aborts, i)
		}
		if !e.stepping {
			out = e.applyAborts(e.now, out)
		}
	}
	if !e.stepping {
		out = e.start(e.now, out)
	}
	return out
}

// Deadline is the end of the running step; false while the engine is idle.
func (e *Engine) Deadline() (time.Duration, bool) { return e.end, e.stepping }

// Stats is the state after the last Step.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Running, s.Waiting = len(e.running), e.waiting
	s.KVUsage = 1 - float64(s.FreeBlocks)/float64(e.cfg.NumBlocks-1)
	return s
}

func (e *Engine) admit(ev Event, out []Out) []Out {
	_, inUse := e.byID[ev.ID]
	if inUse || ev.PromptTokens < 1 || ev.PromptTokens >= e.cfg.MaxModelLen || ev.OutputTokens < 0 || ev.MaxTokens < 0 {
		e.stats.Refused++
		return append(out, Out{Kind: Refused, ID: ev.ID, At: e.now})
	}
	limit, reason := e.cfg.MaxModelLen-ev.PromptTokens, Length
	if ev.MaxTokens > 0 {
		limit = min(limit, ev.MaxTokens)
	}
	if ev.OutputTokens > 0 && ev.OutputTokens < limit {
		limit, reason = ev.OutputTokens, Stop
	}
	var i int32
	if n := len(e.spare); n > 0 {
		i, e.spare = e.spare[n-1], e.spare[:n-1]
	} else {
		i = int32(len(e.slots))
		e.slots = append(e.slots, slot{})
	}
	e.slots[i] = slot{id: ev.ID, prompt: ev.PromptTokens, limit: limit, reason: reason}
	e.byID[ev.ID] = i
	e.pushBack(i)
	e.stats.Submitted++
	return out
}

// start schedules a step at instant at, if there is anything to do.
func (e *Engine) start(at time.Duration, out []Out) []Out {
	if len(e.running) == 0 && e.waiting == 0 {
		return out
	}
	batch, out := e.schedule(at, out)
	e.stats.LastBatch = batch
	e.end = at + e.cfg.Step.Duration(batch)
	e.stepping = true
	return out
}

// complete ends the running step: every request that caught up with its own length gets one token, then aborts are applied.
func (e *Engine) complete(out []Out) []Out {
	e.stepping = false
	e.stats.Steps++
	kept := e.running[:0]
	for _, i := range e.running {
		s := &e.slots[i]
		s.computed += s.chunk
		caughtUp := s.chunk > 0 && s.computed == s.total()
		s.chunk = 0
		if caughtUp {
			out = e.emit(s, out)
		}
		if s.generated == s.limit {
			out = append(out, Out{Kind: Finished, Reason: s.reason, ID: s.id, Tokens: s.generated, At: e.end})
			if s.reason == Stop {
				e.stats.FinishedStop++
			} else {
				e.stats.FinishedLength++
			}
			e.release(i)
			continue
		}
		kept = append(kept, i)
	}
	e.running = kept
	return e.applyAborts(e.end, out)
}

func (e *Engine) emit(s *slot, out []Out) []Out {
	s.generated++
	e.stats.GenerationTokens++
	if s.generated > 1 {
		return append(out, Out{Kind: Token, ID: s.id, Tokens: s.generated, At: e.end})
	}
	e.stats.PromptTokens += uint64(s.prompt)
	return append(out, Out{Kind: FirstToken, ID: s.id, Tokens: 1, At: e.end, Scheduled: s.scheduled})
}

// applyAborts drops the requests marked since the last boundary. One that finished in the step just completed has been released
// and its mark with it; no slot is reused between complete and here.
func (e *Engine) applyAborts(at time.Duration, out []Out) []Out {
	if len(e.aborts) == 0 {
		return out
	}
	for _, i := range e.aborts {
		s := &e.slots[i]
		if !s.aborting {
			continue
		}
		out = append(out, Out{Kind: Aborted, ID: s.id, Tokens: s.generated, At: at})
		e.stats.FinishedAbort++
		if !s.isRunning {
			e.unlink(i)
			e.release(i)
		}
	}
	e.aborts = e.aborts[:0]
	kept := e.running[:0]
	for _, i := range e.running {
		if e.slots[i].aborting {
			e.release(i)
		} else {
			kept = append(kept, i)
		}
	}
	e.running = kept
	return out
}

// release gives back the blocks and the slot of a request that is in no list any more.
func (e *Engine) release(i int32) {
	s := &e.slots[i]
	e.stats.FreeBlocks += s.blocks
	delete(e.byID, s.id)
	*s = slot{}
	e.spare = append(e.spare, i)
}
