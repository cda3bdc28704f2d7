package weights

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

// hfRope is rope_scaling, or rope_parameters as newer versions of transformers write it.
type hfRope struct {
	Type          string  `json:"rope_type"`
	OldType       string  `json:"type"`
	Theta         float64 `json:"rope_theta"`
	PartialRotary float64 `json:"partial_rotary_factor"`
	Factor        float64 `json:"factor"`
	LowFreq       float64 `json:"low_freq_factor"`
	HighFreq      float64 `json:"high_freq_factor"`
	OriginalMax   int     `json:"original_max_position_embeddings"`
}

// rope fills in the base of the rotary frequencies and their scaling. As in transformers, rope_scaling goes before
// rope_parameters, and the base inside either before rope_theta.
func (c *hfConfig) rope(cfg *nn.Config) error {
	text := c.RopeParameters
	if scaling := c.RopeScaling; len(scaling) > 0 && !bytes.Equal(scaling, []byte("null")) {
		text = scaling
	}
	if len(text) == 0 || bytes.Equal(text, []byte("null")) {
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return fmt.Errorf("rotary parameters: %w", err)
	}
	for key, member := range members {
		if member[0] == '{' {
			return fmt.Errorf("rotary parameters for each type of layer (%s) are not implemented", key)
		}
	}
	rope := hfRope{Theta: c.RopeTheta, PartialRotary: 1}
	if err := json.Unmarshal(text, &rope); err != nil {
		return fmt.Errorf("rotary parameters: %w", err)
	}
	if rope.PartialRotary != 1 {
		return errors.New("partial_rotary_factor other than 1 is not implemented")
	}
	cfg.RopeTheta = rope.Theta
	if rope.Type == "" {
		rope.Type = rope.OldType
	}
	var err error
	cfg.RopeScaling, err = rope.scaling()
	return err
}

func (r *hfRope) scaling() (*nn.RopeScaling, error) {
	switch r.Type {
	case "", "default":
		return nil, nil
	case "linear":
		if r.Factor < 1 {
			return nil, fmt.Errorf("rotary scaling: factor is %g, must be at least 1", r.Factor)
		}
		return linearScaling(r.Factor), nil
	case "llama3":
		if r.Factor < 1 || r.LowFreq <= 0 || r.HighFreq <= r.LowFreq || r.OriginalMax <= 0 {
			return nil, fmt.Errorf("rotary scaling llama3 needs factor >= 1, high_freq_factor > low_freq_factor > 0 and "+
				"original_max_position_embeddings > 0; they are %g, %g, %g and %d",
				r.Factor, r.HighFreq, r.LowFreq, r.OriginalMax)
		}
		return &nn.RopeScaling{Factor: r.Factor, LowFreqFactor: r.LowFreq, HighFreqFactor: r.HighFreq,
			OriginalMaxPositions: r.OriginalMax}, nil
	}
	return nil, fmt.Errorf("rotary scaling %q is not implemented; default, linear and llama3 are", r.Type)
}

// linearScaling expresses linear scaling, which divides every frequency by factor, in the terms of Llama 3's: there
// all frequencies are divided whose wavelength exceeds OriginalMaxPositions / LowFreqFactor, and no wavelength is below
// 2π. A factor of 1 is no scaling.
func linearScaling(factor float64) *nn.RopeScaling {
	if factor == 1 {
		return nil
	}
	return &nn.RopeScaling{Factor: factor, LowFreqFactor: 1, HighFreqFactor: 2, OriginalMaxPositions: 1}
}

// isLinear reports whether a scaling divides every frequency by its factor.
func isLinear(s *nn.RopeScaling) bool {
	return float64(s.OriginalMaxPositions) < 2*math.Pi*s.LowFreqFactor
}

// ropeDivisors returns the number by which each of the dim/2 rotary frequencies is divided under a scaling.
func ropeDivisors(s *nn.RopeScaling, theta float64, dim int) []float64 {
	out := make([]float64, dim/2)
	for i := range out {
		wavelength := 2 * math.Pi * math.Pow(theta, float64(2*i)/float64(dim))
		turns := float64(s.OriginalMaxPositions) / wavelength
		smooth := (turns - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
		smooth = min(max(smooth, 0), 1)
		out[i] = 1 / ((1-smooth)/s.Factor + smooth)
	}
	return out
}

// scalingFromDivisors finds the scaling that a GGUF file gives as one divisor for each rotary frequency (its tensor
// rope_freqs.weight): none, linear, or Llama 3's with the constants of all its releases (1, 4, 8192).
func scalingFromDivisors(divisors []float32, theta float64) (*nn.RopeScaling, error) {
	factor := float32(1)
	for _, d := range divisors {
		factor = max(factor, d)
	}
	f := float64(factor)
	for _, s := range []*nn.RopeScaling{
		{Factor: f, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 8192},
		{Factor: f, LowFreqFactor: 1, HighFreqFactor: 2, OriginalMaxPositions: 1},
	} {
		if !closeTo(divisors, ropeDivisors(s, theta, 2*len(divisors))) {
			continue
		}
		if factor == 1 {
			return nil, nil
		}
		return s, nil
	}
	return nil, errors.New("its rotary frequencies are scaled (tensor rope_freqs.weight) in a way that is not " +
		"implemented; Llama 3's scaling with constants 1, 4, 8192 and linear scaling are")
}

func closeTo(got []float32, want []float64) bool {
	for i, w := range want {
		if !(math.Abs(float64(got[i])-w) <= 1e-4*w) {
			return false
		}
	}
	return true
}
