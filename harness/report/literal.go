package report

// Literal makes a text literal inside a line or a table cell of Markdown: no markup, no control characters.
func Literal(s string) string { return md(s) }

// Block is a literal block of Markdown.
func Block(s string) string { return mdBlock(s) }

// Line makes a hostile text safe to show on one line.
func Line(s string) string { return line(s) }
