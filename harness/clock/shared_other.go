//go:build !linux

package clock

// NewShared is a clock of this process, which nobody shares.
func NewShared() (Real, string) { return NewReal(), "" }
