package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"math/big"
)

// JSONHash is the sha256, in hex, of a JSON value re-encoded with sorted keys and numbers in one exact form (0.70 is 0.7); "" if body is not exactly one
// JSON value. Two bodies mean the same if their hashes are equal (FC-PROTO-05).
func JSONHash(body []byte) string {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return ""
	}
	if _, err := dec.Token(); err != io.EOF {
		return ""
	}
	v = plainNumbers(v)
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return ""
	}
	sum := sha256.Sum256(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
	return hex.EncodeToString(sum[:])
}

// plainNumbers writes every number as the fraction it is, so that two spellings of one value are equal and no digit is lost.
func plainNumbers(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x {
			x[k] = plainNumbers(e)
		}
	case []any:
		for i, e := range x {
			x[i] = plainNumbers(e)
		}
	case string:
		// Marked, so that the text of a number is not the number.
		return "string " + x
	case json.Number:
		// An exponent that no request needs would cost the memory of its digits.
		if len(x) < 40 && small(x.String()) {
			if r, ok := new(big.Rat).SetString(x.String()); ok {
				return "number " + r.RatString()
			}
		}
		return "number " + x.String()
	}
	return v
}

// small tells whether a number's exponent is harmless.
func small(s string) bool {
	f, _, err := big.ParseFloat(s, 10, 64, big.ToNearestEven)
	return err == nil && (f.Sign() == 0 || f.MantExp(nil) < 1024 && f.MantExp(nil) > -1024)
}
