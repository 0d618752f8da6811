package checks

import "slices"

// outsideOnly are the checks that look at nothing a model server has recorded: clients, processes, the router's pages and its side of
// ext_proc are enough for them.
var outsideOnly = []string{"startup", "state", "ends", "silent", "series", "declared-reasons", "counters"}

// OutsideOnly tells whether a check can be decided where nobody records what arrives at the model servers.
func OutsideOnly(check string) bool { return slices.Contains(outsideOnly, check) }

// ReadsExchanges tells whether a check looks at what passes between the data plane and the picker.
func ReadsExchanges(check string) bool { return check == "destination" || check == "silent" }

// Compares tells whether a check over the whole run compares instants of model servers with others.
func Compares(check string) bool { return check == "work-conserving" }
