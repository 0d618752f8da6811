package env

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

// Hash is the sha256 of b in hex, as records carry it.
func Hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func itoa(n int) string { return strconv.Itoa(n) }
