package report

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// clean makes a hostile text safe to show on one line or several: invalid bytes, control characters (terminal escapes among
// them) and the marks that reverse the direction of writing become U+FFFD. Line feeds stay if multiline, else they become spaces.
func clean(s string, multiline bool) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' && multiline:
			return r
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case r == utf8.RuneError || unicode.IsControl(r) || reverses(r):
			return utf8.RuneError
		}
		return r
	}, s)
}

// line is clean for one line.
func line(s string) string { return clean(s, false) }

// reverses tells whether r changes the direction of what follows, with which "ssap" can be made to read "pass".
func reverses(r rune) bool {
	return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || r == 0x200e || r == 0x200f || r == 0x061c ||
		r == 0x2028 || r == 0x2029
}

// clip cuts s to at most n characters, the last of which then is an ellipsis.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	r := []rune(s)
	return string(r[:n-1]) + "…"
}

// pad fills s with spaces to n characters.
func pad(s string, n int) string {
	return s + strings.Repeat(" ", max(0, n-utf8.RuneCountInString(s)))
}

// fixed prints x with d decimals, for files in which the same value must give the same bytes.
func fixed(x float64, d int) string { return strconv.FormatFloat(x, 'f', d, 64) }

// plural is "1 request", "2 requests".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
