package env

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
)

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func itoa(n int) string { return strconv.Itoa(n) }
