package extproc

import (
	"encoding/binary"

	"github.com/llm-weir/weir/reference/picker"
)

// PrefixConfig says how a prompt is cut into blocks for the prefix scorer; without MaxBlocks nothing is hashed.
type PrefixConfig struct {
	BlockBytes int // bytes of text, four for a token; 0: 64
	MaxBlocks  int // blocks from the prompt's begin on; what comes later is not hashed
}

// DefaultPrefix are blocks of 16 tokens, as many as the router matches (spec/endpoint-picker.md §8.2).
var DefaultPrefix = PrefixConfig{BlockBytes: 64, MaxBlocks: 2048}

// Into fills in what a picker's request takes from its body. target is the model that will serve it.
func (b Body) Into(r *picker.Request, target string, c PrefixConfig) {
	r.Model, r.Tokens, r.MaxOutput = target, b.PromptTokens, b.MaxOutput
	r.Prefix = b.Prefix(target, c)
}

// Prefix is the chain of hashes over the prompt's whole blocks: two prompts share the first n exactly if their first n blocks, the
// model and the cache salt are equal. A hash is the same in every process.
func (b Body) Prefix(model string, c PrefixConfig) []uint64 {
	if c.MaxBlocks <= 0 {
		return nil
	}
	size := c.BlockBytes
	if size <= 0 {
		size = DefaultPrefix.BlockBytes
	}
	total := 0
	for _, p := range b.prompt {
		total += len(p)
	}
	n := min(total/size, c.MaxBlocks)
	if n == 0 {
		return nil
	}
	h := chain(chain(uint64(size), []byte(model)), []byte(b.salt))
	out := make([]uint64, 0, n)
	var block []byte // of a block that spans pieces
	for _, p := range b.prompt {
		for len(p) > 0 && len(out) < n {
			take := min(size-len(block), len(p))
			block = append(block, p[:take]...)
			p = p[take:]
			if len(block) == size {
				h = chain(h, block)
				out = append(out, h)
				block = block[:0]
			}
		}
	}
	return out
}

// chain continues a hash over b and its length: one multiplication chain for eight bytes.
func chain(h uint64, b []byte) uint64 {
	h = mix(h ^ uint64(len(b)))
	for len(b) >= 8 {
		h = mix(h ^ binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	if len(b) > 0 {
		var last [8]byte
		copy(last[:], b)
		h = mix(h ^ binary.LittleEndian.Uint64(last[:]))
	}
	return h
}

// mix is the finalizer of MurmurHash3 behind an odd increment, so that zeros do not stay zero.
func mix(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
