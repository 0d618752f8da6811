package asyncconfig

import (
	"log/slog"
	"strconv"
)

// Level is the least severity that is logged: -v 4 and above logs every message, 1 to 3 what happens to the process, 0 and less
// errors only. --zap-log-level wins over -v.
func (f Flags) Level() (slog.Level, bool) {
	v := f.V
	switch f.ZapLogLevel {
	case "":
	case "debug":
		v = 4
	case "info":
		v = 2
	case "error", "panic":
		v = 0
	default:
		n, err := strconv.Atoi(f.ZapLogLevel)
		if err != nil || n <= 0 {
			return 0, false
		}
		v = n
	}
	switch {
	case v >= 4:
		return slog.LevelDebug, true
	case v >= 1:
		return slog.LevelInfo, true
	}
	return slog.LevelError, true
}
