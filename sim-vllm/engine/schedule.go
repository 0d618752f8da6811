package engine

import "time"

// schedule chooses the batch of a step that starts at instant at (spec/vllm.md §2.2): running requests first, in list order, then
// the queue, within the token budget and the free blocks.
func (e *Engine) schedule(at time.Duration, out []Out) (Batch, []Out) {
	var b Batch
	budget := e.cfg.MaxNumBatchedTokens
	preempted := false
	for i := 0; i < len(e.running) && budget > 0; i++ {
		s := &e.slots[e.running[i]]
		n := min(e.chunk(s, budget), e.cfg.MaxModelLen-1-s.computed)
		if n <= 0 {
			continue
		}
		for !e.grow(s, n) {
			// The victim is the last of the list and the list is served in order, so the victim has no tokens in this step yet and
			// the budget needs no correction.
			preempted = true
			out = e.preempt(at, out)
			if i >= len(e.running) {
				return b, out // it was the request itself
			}
		}
		budget -= n
		e.take(s, n, at, &b)
	}
	if preempted {
		// Admitting now would hand the blocks just freed to a newcomer, or to the victim itself.
		return b, out
	}
	for e.waiting > 0 && len(e.running) < e.cfg.MaxNumSeqs && budget > 0 {
		i := e.waitHead
		s := &e.slots[i]
		n := e.chunk(s, budget)
		need := s.total()
		if e.cfg.AdmitByChunk {
			need = n
		}
		if ceilDiv(need, e.cfg.BlockSize) > e.stats.FreeBlocks {
			break // the head blocks everything behind it
		}
		e.grow(s, n)
		e.unlink(i)
		s.isRunning = true
		e.running = append(e.running, i)
		budget -= n
		e.take(s, n, at, &b)
	}
	return b, out
}

// chunk is the tokens s is behind, within the budget and the prefill cap.
func (e *Engine) chunk(s *slot, budget int) int {
	n := min(s.total()-s.computed, budget)
	if e.cfg.LongPrefillTokenThreshold > 0 {
		n = min(n, e.cfg.LongPrefillTokenThreshold)
	}
	return n
}

// grow gives s the blocks for n more tokens, or nothing and false.
func (e *Engine) grow(s *slot, n int) bool {
	need := ceilDiv(s.computed+n, e.cfg.BlockSize) - s.blocks
	if need > e.stats.FreeBlocks {
		return false
	}
	e.stats.FreeBlocks -= need
	s.blocks += need
	return true
}

// take puts n tokens of s into the batch.
func (e *Engine) take(s *slot, n int, at time.Duration, b *Batch) {
	s.chunk = n
	if !s.wasScheduled {
		s.wasScheduled, s.scheduled = true, at
	}
	b.Tokens += n
	b.Seqs++
	if s.generated > 0 && n == 1 && s.computed == s.total()-1 {
		b.Context += s.total()
		return
	}
	b.Quadratic += float64(n) * (float64(s.computed) + float64(n)/2)
}

// preempt takes the blocks of the last running request and puts it at the front of the queue, to be recomputed from nothing.
func (e *Engine) preempt(at time.Duration, out []Out) []Out {
	last := len(e.running) - 1
	i := e.running[last]
	e.running = e.running[:last]
	s := &e.slots[i]
	e.stats.FreeBlocks += s.blocks
	e.stats.DiscardedTokens += uint64(s.computed)
	e.stats.Preemptions++
	s.blocks, s.computed, s.isRunning = 0, 0, false
	e.pushFront(i)
	return append(out, Out{Kind: Preempted, ID: s.id, Tokens: s.generated, At: at})
}

func (e *Engine) pushBack(i int32) {
	s := &e.slots[i]
	s.prev, s.next = e.waitTail, none
	if e.waitTail == none {
		e.waitHead = i
	} else {
		e.slots[e.waitTail].next = i
	}
	e.waitTail = i
	e.waiting++
}

func (e *Engine) pushFront(i int32) {
	s := &e.slots[i]
	s.prev, s.next = none, e.waitHead
	if e.waitHead == none {
		e.waitTail = i
	} else {
		e.slots[e.waitHead].prev = i
	}
	e.waitHead = i
	e.waiting++
}

func (e *Engine) unlink(i int32) {
	s := &e.slots[i]
	if s.prev == none {
		e.waitHead = s.next
	} else {
		e.slots[s.prev].next = s.next
	}
	if s.next == none {
		e.waitTail = s.prev
	} else {
		e.slots[s.next].prev = s.prev
	}
	s.prev, s.next = none, none
	e.waiting--
}
