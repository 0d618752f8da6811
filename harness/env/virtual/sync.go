package virtual

import (
	"slices"
	"time"

	"github.com/llm-weir/weir/reference/picker"
)

// How pickers tell each other what they have in flight: a change arrives syncLag later, and what has not changed is said again every
// syncBeat.
const (
	syncLag  = 5 * time.Millisecond
	syncBeat = 200 * time.Millisecond
)

// sharing is what a router has told the others.
type sharing struct {
	replica int // never that of another router
	told    []picker.ForeignLoad
	cut     bool // nothing goes in or out
}

// shares tells whether the router takes part.
func (r *router) shares() bool {
	return r.sys.cfg.SyncLoad && r.wiring.InFlight != nil && r.sys.loaded.Picker.Flow.Detector.ForeignLimit > 0
}

// beat says again what is in flight, for as long as the router serves.
func (r *router) beat() {
	if slices.Contains(r.st.routers(), r) {
		r.tell(true)
		r.st.after(syncBeat, r.beat)
	}
}

// tell tells the others what is in flight, if it has changed or again is set.
func (r *router) tell(again bool) {
	if !r.shares() {
		return
	}
	var loads []picker.ForeignLoad
	for _, sv := range r.st.servers {
		if requests, tokens := r.wiring.InFlight(sv.id); requests > 0 || tokens > 0 {
			loads = append(loads, picker.ForeignLoad{Endpoint: sv.id, Requests: requests, Tokens: tokens})
		}
	}
	if !again && slices.Equal(loads, r.told) || r.cut {
		return
	}
	r.told = loads
	ev := picker.Event{Kind: picker.Foreign, Report: picker.Report{Replica: r.replica, At: r.st.now, Loads: loads}}
	r.st.after(syncLag, func() {
		for _, o := range r.st.routers() {
			if o != r && !o.cut {
				o.step(ev)
			}
		}
	})
}

// CutOff implements sut.Stage.
func (st *stage) CutOff(picker int) error {
	st.routerOf(picker).cut = true
	return nil
}
