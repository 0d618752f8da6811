package arrival

import (
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
)

// Stream is the generator of one named purpose ("tenant/gold/arrival"). Each name has its own sequence, so that one more draw for
// one purpose never shifts another, and removing a tenant leaves the others' schedules as they were.
func Stream(seed uint64, name string) *rand.Rand {
	var head [8]byte
	binary.BigEndian.PutUint64(head[:], seed)
	// A cryptographic hash because both words of a PCG seed must differ in many bits: names and seeds are mostly near neighbours.
	sum := sha256.Sum256(append(head[:], name...))
	return rand.New(rand.NewPCG(binary.BigEndian.Uint64(sum[0:8]), binary.BigEndian.Uint64(sum[8:16])))
}
