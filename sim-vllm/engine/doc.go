// Package engine is a discrete model of one vLLM V1 server: which requests share a step, how long the step takes, and which
// tokens come out at its end.
//
//	admit --> waiting --+--> running --step--> first token, tokens, finished
//	            ^       |      |  |
//	            |  blocks fit? |  +-- aborted (at the next step boundary)
//	            +-- preempted -+      (blocks freed, recomputed later)
//
// It is a machine: Step(now, event) is the only way in, Deadline says when the running step ends, and no clock, socket, lock or
// goroutine lives here. Scheduling follows spec/vllm.md §2.2, memory §2.3 (blocks are counted, their contents are not: there is
// no prefix cache), time §3.2.
package engine
