package bm25

import (
	"cmp"
	"slices"
)

// impactPairs is the number of pairs of an impact.
const impactPairs = 4

// impact says what postings can add to a score at most, whatever k1 and b are: none of them has a higher frequency and a
// shorter passage than all of its pairs (frequency, length as a byte). Frequencies from 255 on are 255; an unused pair
// has frequency 0. Lucene keeps the same with each block.
type impact [2 * impactPairs]byte

const topFreq = 255

// impactOf returns the impact of postings. lengths holds the length of each passage as a byte.
func impactOf(docs []uint32, freqs []uint16, lengths []uint8) impact {
	type pair struct{ freq, length uint8 }
	pairs := make([]pair, len(docs))
	for i, doc := range docs {
		pairs[i] = pair{uint8(min(freqs[i], topFreq)), lengths[doc]}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(-cmp.Compare(a.freq, b.freq), cmp.Compare(a.length, b.length))
	})
	// Those that no other beats in both ways, by falling frequency and length.
	kept := pairs[:0]
	for _, p := range pairs {
		if len(kept) == 0 || p.length < kept[len(kept)-1].length {
			kept = append(kept, p)
		}
	}
	// High frequencies differ least: they are the first to share a pair.
	for len(kept) > impactPairs {
		kept[1].freq = kept[0].freq
		kept = kept[1:]
	}
	var out impact
	for i, p := range kept {
		out[2*i], out[2*i+1] = p.freq, p.length
	}
	return out
}

// join returns the impact of two lots of postings.
func (a impact) join(b impact) impact {
	var docs []uint32
	var freqs []uint16
	var lengths []uint8
	for _, side := range []impact{a, b} {
		for i := 0; i < len(side) && side[i] > 0; i += 2 {
			docs = append(docs, uint32(len(docs)))
			freqs = append(freqs, uint16(side[i]))
			lengths = append(lengths, side[i+1])
		}
	}
	return impactOf(docs, freqs, lengths)
}

// bound returns the most that a posting under a packed impact can add for weight 1.
func (x *Index) bound(packed []byte) float32 {
	most := float32(0)
	for i := 0; i+1 < len(packed) && packed[i] > 0; i += 2 {
		switch freq, length := packed[i], packed[i+1]; {
		case int(freq) < len(x.saturation):
			most = max(most, x.saturation[freq][length])
		case freq < topFreq:
			most = max(most, x.part(1, uint32(freq), length))
		default:
			most = 1
		}
	}
	return most
}
