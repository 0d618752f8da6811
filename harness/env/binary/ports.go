package binary

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/llm-weir/weir/harness/clock"
)

// Ports given to programs lie below those that systems draw for outgoing connections: one of those could take a port between the choice
// and the moment at which the program listens.
const (
	firstPort = 12000
	lastPort  = 31999
)

// ports gives every port once before it gives one again.
var ports = struct {
	sync.Mutex
	next int
}{next: firstPort + os.Getpid()*1009%(lastPort-firstPort)}

// FreePort is a port that nobody listens on at any address.
func FreePort() (int, error) {
	ports.Lock()
	defer ports.Unlock()
	for range lastPort - firstPort {
		p := ports.next
		if ports.next++; ports.next > lastPort {
			ports.next = firstPort
		}
		if free(p) {
			return p, nil
		}
	}
	return 0, fmt.Errorf("no port from %d to %d is free", firstPort, lastPort)
}

func free(port int) bool {
	ln, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return false
	}
	ln.Close()
	return true
}

// awaitFree waits until a port can be listened on.
func awaitFree(port int, limit time.Duration) bool {
	for c := clock.NewReal(); !free(port); {
		if c.Now() > limit {
			return false
		}
		pause()
	}
	return true
}
