package selfcheck

import (
	"time"

	"github.com/llm-weir/weir/harness/env"
	"github.com/llm-weir/weir/harness/wire"
	"github.com/llm-weir/weir/reference/epp"
	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/picker"
)

var evictionMutants = []Mutant{
	{Name: "eviction-off", Fault: "eviction is enabled and never happens", Class: "EVICT", Meant: []string{"FC-EVI-01"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.Eviction = false })}},
	{Name: "eviction-always", Fault: "eviction runs although it was not enabled", Class: "EVICT", Meant: []string{"FC-EVI-04", "FC-PRI-04"},
		Tamper: env.Tamper{Config: flow(func(c *flowcontrol.Config) { c.Eviction = true })}},
	{Name: "eviction-of-zero", Fault: "work at priority 0 is evicted", Class: "EVICT", Meant: []string{"FC-EVI-02"},
		Tamper: env.Tamper{Wiring: evict(func(running, waits map[uint64]int, outs []picker.Out) []picker.Out {
			return append(outs, stopBelow(running, highest(waits), 1, func(p int) bool { return p == 0 })...)
		})}},
	{Name: "eviction-of-all", Fault: "one demand evicts everything below it", Class: "EVICT", Meant: []string{"FC-EVI-01", "FC-EVI-09"},
		Tamper: env.Tamper{Wiring: evict(func(running, waits map[uint64]int, outs []picker.Out) []picker.Out {
			return append(outs, stopBelow(running, highest(waits), len(running), anyPriority)...)
		})}},
	{Name: "eviction-of-equals", Fault: "demand evicts work of its own priority", Class: "EVICT", Meant: []string{"FC-EVI-03"},
		Tamper: env.Tamper{Wiring: evict(func(running, waits map[uint64]int, outs []picker.Out) []picker.Out {
			for _, p := range waits {
				if p == -10 {
					return append(outs, stopBelow(running, 100, 1, func(q int) bool { return q == p })...)
				}
			}
			return outs
		})}},
	{Name: "eviction-of-oldest", Fault: "among equals the oldest is evicted", Class: "EVICT", Meant: []string{"FC-EVI-08"},
		Tamper: env.Tamper{Wiring: evict(func(running, _ map[uint64]int, outs []picker.Out) []picker.Out {
			for i, o := range outs {
				if o.Kind != picker.Evict {
					continue
				}
				p := running[o.ID]
				if vs := stopBelow(running, 100, 1, func(q int) bool { return q == p }); len(vs) > 0 {
					outs[i].ID = vs[0].ID
				}
			}
			return outs
		})}},
	{Name: "eviction-of-newest", Fault: "the newest is evicted, whatever its priority", Class: "EVICT", Meant: []string{"FC-EVI-08"},
		Tamper: env.Tamper{Wiring: evict(func(running, _ map[uint64]int, outs []picker.Out) []picker.Out {
			for i, o := range outs {
				if o.Kind != picker.Evict {
					continue
				}
				newest := o.ID
				for id, p := range running {
					if p < 0 && id > newest {
						newest = id
					}
				}
				outs[i].ID = newest
				delete(running, newest)
			}
			return outs
		})}},
	{Name: "eviction-without-need", Fault: "demand that found room evicts all the same", Class: "EVICT", Meant: []string{"FC-EVI-10"},
		Tamper: env.Tamper{Wiring: evict(func(running, _ map[uint64]int, outs []picker.Out) []picker.Out {
			for _, o := range outs {
				if o.Kind == picker.Dispatch && running[o.ID] >= 100 {
					return append(outs, stopBelow(running, 100, 1, anyPriority)...)
				}
			}
			return outs
		})}},
	{Name: "eviction-hidden", Fault: "an evicted stream ends as if it were complete", Class: "EVICT", Meant: []string{"FC-EVI-06"},
		Tamper: plane(env.DataPlane{CompleteEvicted: true})},
}

func anyPriority(int) bool { return true }

// evict lets change rewrite what the machine puts out, knowing the priorities of what runs and of what waits.
func evict(change func(running, waits map[uint64]int, outs []picker.Out) []picker.Out) func(*epp.Wiring) {
	return func(w *epp.Wiring) {
		running, waits := map[uint64]int{}, map[uint64]int{}
		w.Machine = &wrapper{inner: w.Machine,
			in: func(_ time.Duration, ev *picker.Event) bool {
				switch ev.Kind {
				case picker.Arrive:
					waits[ev.ID] = ev.Request.Priority
				case picker.Finish, picker.Cancel:
					delete(running, ev.ID)
					delete(waits, ev.ID)
				}
				return true
			},
			out: func(_ time.Duration, outs []picker.Out) []picker.Out {
				for _, o := range outs {
					if o.Kind == picker.Dispatch {
						running[o.ID] = waits[o.ID]
					}
					delete(waits, o.ID)
				}
				return change(running, waits, outs)
			}}
	}
}

func highest(waits map[uint64]int) int {
	demand := 0
	for _, p := range waits {
		demand = max(demand, p)
	}
	return demand
}

// stopBelow stops up to n running requests below a demand of at least 100, the oldest first, so that two runs agree.
func stopBelow(running map[uint64]int, demand, n int, eligible func(priority int) bool) []picker.Out {
	var outs []picker.Out
	for id := uint64(1); id < 1<<12 && len(outs) < n; id++ {
		if p, ok := running[id]; ok && p < demand && demand >= 100 && eligible(p) {
			outs = append(outs, picker.Out{Kind: picker.Evict, ID: id, Outcome: wire.Dispatched})
			delete(running, id)
		}
	}
	return outs
}
