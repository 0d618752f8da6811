package picker

import (
	"errors"

	"github.com/llm-weir/weir/reference/flowcontrol"
	"github.com/llm-weir/weir/reference/scheduling"
)

// Config is the whole picker.
type Config struct {
	Flow       flowcontrol.Config
	Scheduling scheduling.Config
}

// Validate says everything that is wrong with the configuration.
func (c Config) Validate() error {
	return errors.Join(c.Flow.Validate(), c.Scheduling.Validate())
}
