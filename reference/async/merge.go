package async

// Lanes is the number of priority lanes of TierPriority.
const Lanes = 6

// LaneNames are the keys of lane_objectives, by lane; lane 0 goes first (AP-TIER-01).
var LaneNames = [Lanes]string{"reserved-interactive", "reserved-async", "reserved-batch", "overflow-interactive", "overflow-async", "overflow-batch"}

// Values of the labels that make up a lane.
const (
	LabelClassification = "classification"
	Reserved            = "reserved"
	Overflow            = "overflow"
	TierInteractive     = "interactive"
	TierAsync           = "async"
	TierBatch           = "batch"
)

// lane is where the labels put a message: an unknown tier counts as batch, no classification as overflow (AP-TIER-03).
func lane(labels map[string]string, tierLabel string) int {
	tier := 2
	switch labels[tierLabel] {
	case TierInteractive:
		tier = 0
	case TierAsync:
		tier = 1
	}
	if labels[LabelClassification] == Reserved {
		return tier
	}
	return 3 + tier
}

// next is the queue whose turn it is and the lane from which it goes; nil if nothing is ready. The choice is made when a worker is
// free, so no message that is already pulled ever waits behind one of a lower lane.
func (m *Machine) next(p *pool) (*queue, int) {
	if m.cfg.Merge.Kind == RandomRobin {
		var chosen *queue
		n := 0
		for _, q := range p.queues {
			if q.ready[0].n > 0 {
				n++
				if m.rng.IntN(n) == 0 {
					chosen = q
				}
			}
		}
		return chosen, 0
	}
	for lane := range Lanes {
		var chosen *queue
		for _, q := range p.queues {
			if q.ready[lane].n > 0 && (chosen == nil || q.turn[lane] < chosen.turn[lane]) {
				chosen = q
			}
		}
		if chosen != nil {
			p.turns++
			chosen.turn[lane] = p.turns
			return chosen, lane
		}
	}
	return nil, 0
}
