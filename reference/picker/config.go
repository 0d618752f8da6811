package picker

import (
	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/scheduling"
)

// Config is the whole picker.
type Config struct {
	Flow       flowcontrol.Config
	Scheduling scheduling.Config
}
