package main

import (
	"fmt"
	"io"
)

// row is a figure, beside its target if it has one.
type row struct {
	what, target, measured string
	met                    bool
}

func printTable(w io.Writer, rows []row) {
	fmt.Fprintln(w, "| the full picker | target | measured | |")
	fmt.Fprintln(w, "|---|---|---|---|")
	for _, r := range rows {
		verdict := "**missed**"
		switch {
		case r.target == "":
			verdict = ""
		case r.met:
			verdict = "met"
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", r.what, r.target, r.measured, verdict)
	}
}
