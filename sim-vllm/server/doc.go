// Package server answers OpenAI HTTP and SSE requests as one vLLM server would, in real time around one engine.
//
//	               +-- refused: fault injection, vLLM error bodies
//	request --log--+-- held: answered when it is released ---------------+
//	               +-- inbox --> engine goroutine --> produced, reason --+--> JSON or SSE
//	/metrics <-- vLLM's series, real or scripted
//	/admin/  <-- the log, hold and release, scripted load, faults
//
// One goroutine owns the engine and sleeps to the absolute deadlines of its steps. It tells a request's handler only how many
// tokens exist, so that a slow reader costs memory nowhere and delays nobody. Behaviour follows spec/vllm.md §2.5 to §2.7.
package server
