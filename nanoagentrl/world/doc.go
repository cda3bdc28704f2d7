// Package world makes small worlds that are seeded and never met before, so that nothing about them can be memorised.
//
// Facts is a world of people, towns, rivers and trades, told in passages, with questions of one and two hops that only
// searching can answer. Sums is a world of word problems with small numbers, in digits and in words, for single-turn
// maths. Both have training, validation and test splits that share words but no person, no town and no sum. What
// belongs to which split is fixed once and for all, whatever the seed: a model that met the training split of one seed
// has met nothing of the test split of any other.
//
// All words are set apart by spaces, and FactsVocabulary and SumsVocabulary list them, so that a word-level tokenizer
// has one token for each.
package world

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// Split names a part of a world.
type Split string

// The splits. Their people, towns and sums are disjoint.
const (
	Train Split = "train"
	Val   Split = "val"
	Test  Split = "test"
)

// Splits lists all splits.
var Splits = []Split{Train, Val, Test}

// ParseSplit reads the name of a split.
func ParseSplit(name string) (Split, error) {
	for _, s := range Splits {
		if name == string(s) {
			return s, nil
		}
	}
	return "", fmt.Errorf("world: there is no split %q; choose train, val or test", name)
}

// number is the place of a split in Splits.
func (s Split) number() uint64 {
	for i, other := range Splits {
		if s == other {
			return uint64(i)
		}
	}
	return uint64(len(Splits))
}

// The streams of random numbers that one seed gives.
const (
	entityStream = iota
	factStream
	passageStream
	noiseStream
	questionStream
	sumStream
	partitionStream
)

// source returns the random numbers of a seed for one purpose and one split, which other purposes and splits do not
// disturb.
func source(seed, stream uint64, split Split) *rand.Rand {
	var key [32]byte
	for i, v := range []uint64{seed, stream, split.number()} {
		binary.LittleEndian.PutUint64(key[8*i:], v)
	}
	return rand.New(rand.NewChaCha8(key))
}
