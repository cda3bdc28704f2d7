package learn

import "math"

// Schedule is the course of the learning rate: a linear rise over Warmup steps, then Shape down to 0 at step Steps.
type Schedule struct {
	// Peak is the learning rate after the warm-up.
	Peak float64
	// Shape is "constant", "linear" or "cosine".
	Shape string
	// Warmup and Steps are numbers of training steps.
	Warmup, Steps int
}

// At returns the learning rate of a training step, counted from 1. The first step of a warm-up of n has rate peak/n,
// the last step of the run has a rate above 0.
func (s Schedule) At(step int) float64 {
	if step <= s.Warmup {
		return s.Peak * float64(step) / float64(s.Warmup)
	}
	left := float64(s.Steps-step+1) / float64(max(1, s.Steps-s.Warmup)) // 1 at the first step after the warm-up
	left = min(max(left, 0), 1)
	switch s.Shape {
	case "linear":
		return s.Peak * left
	case "cosine":
		return s.Peak * (1 - math.Cos(math.Pi*left)) / 2
	}
	return s.Peak
}
