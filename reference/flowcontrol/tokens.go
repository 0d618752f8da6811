package flowcontrol

import "math"

// mostTokens bounds what one request can account, so that no sum of them overflows.
const mostTokens = 1 << 40

// weigh is the work a request stands for: its prompt and, where outputs are estimated,
//
//	min(round(prompt x OutputRatio), the client's own limit, MaxEstimatedOutput)
//
// of output (FC-SAT-19). Tokens are an estimate of work, not a reading of the engine (FC-SAT-15).
func (d *DetectorConfig) weigh(r *Request) (prompt, output int64) {
	prompt = min(max(r.Tokens, 0), mostTokens)
	if !d.EstimateOutput {
		return prompt, 0
	}
	output = int64(min(math.Round(float64(prompt)*d.OutputRatio), mostTokens))
	if r.MaxOutput > 0 {
		output = min(output, r.MaxOutput)
	}
	if d.MaxEstimatedOutput > 0 {
		output = min(output, d.MaxEstimatedOutput)
	}
	return prompt, output
}

// start accounts an entry as in flight: its work on the member where it runs and, if another endpoint fills the cache first, the
// prompt there as well until the first chunk (FC-PD-07).
func (p *Pool) start(e *Entry, m, prefill *Member) {
	prompt, output := p.det.weigh(&e.Request)
	e.member, e.tokens = m, prompt+output
	p.account(m, +1, e.tokens)
	m.expect(e, &m.unseen, loadSlot)
	if prefill != nil {
		e.prefill, e.filling = prefill, prompt
		p.account(prefill, +1, prompt)
		prefill.expect(e, &prefill.filling, prefillSlot)
	}
}

// firstChunk frees what a response that has begun no longer needs: the place on the prefill endpoint and, unless outputs are
// estimated, all its tokens. A busy decoder may so have none (FC-SAT-18).
func (p *Pool) firstChunk(e *Entry) {
	p.filled(e)
	if !p.det.EstimateOutput && e.tokens != 0 {
		p.account(e.member, 0, -e.tokens)
		e.tokens = 0
	}
}

// filled ends the accounting on the prefill endpoint.
func (p *Pool) filled(e *Entry) {
	m := e.prefill
	if m == nil {
		return
	}
	p.account(m, -1, -e.filling)
	m.seen(e, &m.filling, prefillSlot)
	e.prefill, e.filling = nil, 0
}

// stop ends the accounting of an entry.
func (p *Pool) stop(e *Entry) {
	p.filled(e)
	p.account(e.member, -1, -e.tokens)
	e.tokens = 0
	e.member.seen(e, &e.member.unseen, loadSlot)
}

// frees tells whether stopping an entry would lower the pool's saturation: not if its endpoint has left, and not if tokens are
// counted and it has none left.
func (p *Pool) frees(e *Entry) bool {
	return e.member.present && (p.det.Kind != Concurrency || p.det.Mode != Tokens || e.tokens > 0)
}

// account adds to what is in flight on a member, and to the sums of its role while it is in the pool.
func (p *Pool) account(m *Member, requests int, tokens int64) {
	m.inFlight += requests
	m.tokens += tokens
	if m.present {
		p.flight[m.Role] += requests
		p.tokens[m.Role] += tokens
	}
	p.valid = false
}

// expect notes that an entry is in no sample of the member yet; seen that it is, or that it is over.
func (m *Member) expect(e *Entry, l *list, slot int) {
	l.push(e, slot)
	e.at[slot] = 1
	m.extra++
}

func (m *Member) seen(e *Entry, l *list, slot int) {
	if e.at[slot] != 0 {
		l.remove(e, slot)
		e.at[slot] = 0
		m.extra--
	}
}
