package checks

// OutsideOnly tells whether a check compares nothing with what the model servers recorded, and so can be decided where nobody records it
// or where their clocks cannot be compared. Who is said to be waiting is: a request that the model servers have had is not.
func OutsideOnly(s Spec) bool {
	switch s.Check {
	case "startup", "state", "ends", "declared-reasons", "recovers", "tells", "planned":
		return true
	case "series":
		return len(s.Waiting) == 0
	}
	return false
}

// ReadsExchanges tells whether a check looks at what passes between the data plane and the picker.
func ReadsExchanges(check string) bool { return check == "destination" || check == "silent" }

// Compares tells whether a check over the whole run compares instants of model servers with others.
func Compares(check string) bool { return check == "work-conserving" || check == "counters" }
