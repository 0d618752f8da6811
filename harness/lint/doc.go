// Package lint holds the rules of the repository as tests; it has no other code.
//
//	source tree --load--> tree (Go syntax, texts, links) --rule--> []problem (file:line, what, how to fix)
//
// Each rule is a pure function of a tree. One test runs it over the repository, another over small trees in memory that break it
// and that keep it, so that a rule which has gone blind is noticed. The table of who may import whom is data, in table_test.go.
package lint
