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
// and the moment at which the program listens. So could another process like this one: the range is cut into blocks, and whoever listens
// on the first port of a block has the others.
const (
	firstPort = 12000
	lastPort  = 31999
	blockSize = 50
	blocks    = (lastPort + 1 - firstPort) / blockSize
	// ownBlocks is how many a process takes before it gives ports again, the oldest first.
	ownBlocks = 20
)

// ports gives every port of its blocks once before it gives one again.
var ports = struct {
	sync.Mutex
	try  int // the block that is tried next
	own  []int
	held []net.Listener // one a block, for as long as the process lives
	next int            // of the ports in own
}{try: os.Getpid() * 7 % blocks}

// FreePort is a port that nobody listens on at any address.
func FreePort() (int, error) {
	ports.Lock()
	defer ports.Unlock()
	for range ownBlocks*blockSize + blocks {
		if ports.next >= len(ports.own)*(blockSize-1) && !claim() {
			if len(ports.own) == 0 {
				break
			}
			ports.next = 0
		}
		p := ports.own[ports.next/(blockSize-1)] + 1 + ports.next%(blockSize-1)
		ports.next++
		if free(p) {
			return p, nil
		}
	}
	return 0, fmt.Errorf("no port from %d to %d is free", firstPort, lastPort)
}

// claim takes one more block; false if there are enough, or no more.
func claim() bool {
	if len(ports.own) == ownBlocks {
		return false
	}
	for range blocks {
		first := firstPort + ports.try*blockSize
		ports.try = (ports.try + 1) % blocks
		ln, err := net.Listen("tcp", address(first))
		if err == nil {
			ports.own, ports.held = append(ports.own, first), append(ports.held, ln)
			return true
		}
	}
	return false
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
