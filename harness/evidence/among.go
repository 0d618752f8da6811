package evidence

import (
	"slices"
	"strings"
)

// Among tells whether the message id is named by ids: as it is, or by a prefix that ends with an asterisk. No ids name every
// message. What a script waits for and what a check judges are named in this one way.
func Among(ids []string, id string) bool {
	return len(ids) == 0 || slices.ContainsFunc(ids, func(p string) bool {
		prefix, ok := strings.CutSuffix(p, "*")
		return p == id || ok && strings.HasPrefix(id, prefix)
	})
}
