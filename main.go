// Command weir certifies and benchmarks the flow control of LLM inference routers.
package main

import "github.com/llm-weir/weir/harness/cli"

func main() { cli.Main() }
