package main

import (
	"cmp"
	"math"
	"slices"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
)

// logProbs returns the log-probability of each token but the first of each sequence, all computed as one padded batch.
func logProbs(p *policy.Policy, sequences [][]int) ([][]float32, error) {
	rows := make([]nn.Row, len(sequences))
	for i, ids := range sequences {
		mask := slices.Repeat([]uint8{1}, len(ids))
		mask[0] = 0
		rows[i] = nn.Row{IDs: ids, Mask: mask}
	}
	batch, err := nn.NewBatch(rows, 0, false)
	if err != nil {
		return nil, err
	}
	flat, _, err := p.Program.LogProbs(p.Params, batch, 1)
	if err != nil {
		return nil, err
	}
	out := make([][]float32, len(sequences))
	for i, ids := range sequences {
		out[i], flat = flat[:len(ids)-1], flat[len(ids)-1:]
	}
	return out, nil
}

// top is the number of likeliest next tokens that are compared.
const top = 5

// likeliest returns the ids with the highest scores, the highest first.
func likeliest(scores []float64) []int {
	ids := make([]int, len(scores))
	for i := range ids {
		ids[i] = i
	}
	slices.SortFunc(ids, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	return ids[:top]
}

// nextLogProbs returns the log-probability of each token of the vocabulary after each sequence, [sequences][V]. The
// residual stream is that of cached decoding; the rest is worked out here.
func nextLogProbs(p *policy.Policy, sequences [][]int) ([][]float64, error) {
	cfg := p.Program.Config()
	width := 0
	for _, ids := range sequences {
		width = max(width, nn.Bucket(len(ids)))
	}
	cache, err := nn.NewCache(p.Params, len(sequences), width)
	if err != nil {
		return nil, err
	}
	defer cache.Free()
	x, err := p.Program.Extend(p.Params, cache, sequences, width)
	if err != nil {
		return nil, err
	}
	defer device.Free(x)
	stream, err := device.Values[float32](x) // [sequences*width, D]
	if err != nil {
		return nil, err
	}
	names := p.Params.Names()
	output := names[len(names)-1]
	if cfg.TieEmbeddings {
		output = names[0]
	}
	matrix, err := p.Params.Host(output) // [V, D]
	if err != nil {
		return nil, err
	}
	norm, err := p.Params.Host("model.norm.weight") // [D]
	if err != nil {
		return nil, err
	}
	out := make([][]float64, len(sequences))
	for i, ids := range sequences {
		last := i*width + len(ids) - 1
		out[i] = logSoftmax(cfg, stream[last*cfg.HiddenSize:(last+1)*cfg.HiddenSize], norm, matrix)
	}
	return out, nil
}

// logSoftmax applies the final norm [D] and the output matrix [V, D] to one row x [D] of the residual stream, and
// returns the log-probabilities [V].
func logSoftmax(cfg *nn.Config, x, norm, matrix []float32) []float64 {
	squares := 0.0
	for _, v := range x {
		squares += float64(v) * float64(v)
	}
	scale := 1 / math.Sqrt(squares/float64(len(x))+cfg.NormEps)
	normed := make([]float64, len(x))
	for i, v := range x {
		normed[i] = float64(v) * scale * float64(norm[i])
	}
	scores := make([]float64, cfg.VocabSize)
	for id := range scores {
		for i, w := range matrix[id*len(x) : (id+1)*len(x)] {
			scores[id] += float64(w) * normed[i]
		}
	}
	sum, highest := 0.0, slices.Max(scores)
	for _, s := range scores {
		sum += math.Exp(s - highest)
	}
	for id := range scores {
		scores[id] -= highest + math.Log(sum)
	}
	return scores
}

// largestShift returns the largest difference between two sets of log-probabilities.
func largestShift(before [][]float32, after []sequence) (largest float64) {
	for i, s := range after {
		for t, v := range s.LogProbs {
			largest = max(largest, math.Abs(float64(v-before[i][t])))
		}
	}
	return largest
}
