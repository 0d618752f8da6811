package scheduling

import (
	"slices"

	"github.com/llm-weir/weir/reference/flowcontrol"
)

// affinity is how ready an endpoint is for a LoRA adapter, which requests name as their model: running 1.0, else a free slot 0.8, else
// waiting 0.6, else 0. Adapters that wait take the next free slots, so they fill slots here as well.
func affinity(l *flowcontrol.Load, adapter string) float64 {
	switch {
	case slices.Contains(l.Adapters, adapter):
		return 1
	case len(l.Adapters)+len(l.WaitingAdapters) < l.MaxAdapters:
		return 0.8
	case slices.Contains(l.WaitingAdapters, adapter):
		return 0.6
	}
	return 0
}
