package evidence

import "testing"

func TestAmong(t *testing.T) {
	for _, c := range []struct {
		says string
		ids  []string
		id   string
		want bool
	}{
		{"none names all", nil, "a", true},
		{"itself", []string{"b", "a"}, "a", true},
		{"another", []string{"b"}, "a", false},
		{"a prefix", []string{"a-*"}, "a-7", true},
		{"the prefix alone", []string{"a-*"}, "a-", true},
		{"less than the prefix", []string{"a-*"}, "a", false},
		{"a longer id without an asterisk", []string{"a"}, "a-7", false},
		{"an asterisk that is meant", []string{"*"}, "a", true},
		{"an empty name is no wildcard", []string{""}, "a", false},
	} {
		if got := Among(c.ids, c.id); got != c.want {
			t.Errorf("%s: %v", c.says, got)
		}
	}
}
