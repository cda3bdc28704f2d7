package agent

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSeedsAreTheSameInEveryRun(t *testing.T) {
	// Fixed values: a change would make resumed runs draw other samples.
	assert.Equal(t, uint64(0xe220a8397b1dcdaf), mix(0), "first output of splitmix64 with seed 0")
	assert.Equal(t, uint64(0x19311065cd3e9747), Seeds(7, "train", 3)(2, 1))
}

func TestSeedsDifferInEveryPart(t *testing.T) {
	seen := map[uint64]bool{}
	n := 0
	for run := range uint64(3) {
		for _, tag := range []string{"train", "eval/nq", ""} {
			for step := range 5 {
				seed := Seeds(run, tag, step)
				for question := range 16 {
					for sample := range 8 {
						seen[seed(question, sample)] = true
						n++
					}
				}
			}
		}
	}
	assert.Len(t, seen, n)
}
