package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// expected is what a checkpoint must hold, and do, in other hands.
type expected struct {
	// Checkpoint is the checkpoint's folder, relative to the file that says so.
	Checkpoint string `json:"checkpoint"`
	// Shift is the largest change of a log-probability that the training step made, in nats.
	Shift float64 `json:"shift"`
	// AutoTokenizer says that Python's AutoTokenizer reads the tokenizer, and not only PreTrainedTokenizerFast.
	AutoTokenizer bool       `json:"auto_tokenizer"`
	EOS           []int      `json:"eos_token_ids"`
	Tensors       []tensor   `json:"tensors"`
	Sequences     []sequence `json:"sequences"`
	Texts         []text     `json:"texts"`
	Chats         []chat     `json:"chats"`
}

// tensor describes the f32 values of a parameter; SHA256 is that of their little-endian bytes.
type tensor struct {
	Name   string  `json:"name"`
	Shape  []int   `json:"shape"`
	SHA256 string  `json:"sha256"`
	RMS    float64 `json:"rms"`
}

// sequence holds the log-probability, in nats, of each token but the first, and the five likeliest tokens after the last.
type sequence struct {
	IDs         []int     `json:"ids"`
	LogProbs    []float32 `json:"logprobs"`
	TopIDs      []int     `json:"top_ids"`
	TopLogProbs []float64 `json:"top_logprobs"`
}

// text is a text, its ids and what they decode to.
type text struct {
	Text    string `json:"text"`
	IDs     []int  `json:"ids"`
	Decoded string `json:"decoded"`
}

// chat is a chat as the model's template renders it.
type chat struct {
	Messages            []tokenizer.Message `json:"messages"`
	AddGenerationPrompt bool                `json:"add_generation_prompt"`
	Text                string              `json:"text"`
}

// samples are texts that tokenizers split in different ways.
var samples = []string{
	"where was Ada Bell born ?",
	"<think> who </think><search>Ada Bell</search>\n\n<information>Doc 1(Title: \"Ada Bell\") Ada Bell was born in Jena ." +
		"</information>\n\n<answer> Jena </answer>",
	"Hello, world! It's 1234 apples, they'll cost $56.78 (or 9%).",
	"  leading, trailing  \t\ttabs\n\n\n  and\r\nlines \n",
	"def f(x):\n    return x->y[0] != 'z' && 1e-10 # naïve café, cafe\u0301, Å, ﬁ",
	"東京は日本の首都です。Привет, мир! 안녕하세요 🙂👨‍👩‍👧 𝔘𝔫𝔦",
	"<|im_start|>user\nHi<|im_end|>\n<|endoftext|><eos> <unk>",
	"\u00a0\u2003\u2029\u200b\u0000 odd \u0301space",
	"",
}

var chats = [][]tokenizer.Message{
	{{Role: "user", Content: "Hi there"}},
	{{Role: "system", Content: " Be brief.\n"}, {Role: "user", Content: "  What is 2+2? \n"}},
	{{Role: "user", Content: "u1\nu"}, {Role: "assistant", Content: "a1 <b>'q'\" é"}, {Role: "user", Content: "u2"}},
}

// top is the number of likeliest next tokens that are compared.
const top = 5

// probes returns token sequences of different lengths for a model: texts, and ids from all over the vocabulary, those
// without a token included.
func probes(p *policy.Policy) [][]int {
	corpus, _ := data.TinyWorld(1, 12)
	var passages []string
	for _, passage := range corpus {
		passages = append(passages, passage.Contents)
	}
	random := rand.New(rand.NewPCG(1, 0x7072))
	ids := make([]int, 200)
	for i := range ids {
		ids[i] = random.IntN(p.Program.Config().VocabSize)
	}
	list := [][]int{ids, p.Tokenizer.Encode(strings.Join(passages, "\n"))}
	for _, s := range samples {
		if encoded := p.Tokenizer.Encode(s); len(encoded) > 1 {
			list = append(list, encoded)
		}
	}
	return list
}

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

// expect collects what the policy in memory gives.
func expect(p *policy.Policy, sequences [][]int) (*expected, error) {
	cfg := p.Program.Config()
	_, words := p.Tokenizer.(*tokenizer.Words)
	e := &expected{
		// AutoTokenizer takes a tokenizer of its own for this type, whatever tokenizer_config.json says.
		AutoTokenizer: !words || cfg.ModelType != "qwen2",
		EOS:           cfg.EOS,
		Chats:         []chat{},
	}
	for _, param := range cfg.Params() {
		t, err := describe(p, param)
		if err != nil {
			return nil, err
		}
		e.Tensors = append(e.Tensors, t)
	}
	logp, err := logProbs(p, sequences)
	if err != nil {
		return nil, err
	}
	next, err := nextLogProbs(p, sequences)
	if err != nil {
		return nil, err
	}
	for i, ids := range sequences {
		s := sequence{IDs: ids, LogProbs: logp[i]}
		for _, id := range likeliest(next[i]) {
			s.TopIDs, s.TopLogProbs = append(s.TopIDs, id), append(s.TopLogProbs, next[i][id])
		}
		e.Sequences = append(e.Sequences, s)
	}
	for _, s := range samples {
		ids := append([]int{}, p.Tokenizer.Encode(s)...)
		e.Texts = append(e.Texts, text{s, ids, p.Tokenizer.Decode(ids)})
	}
	if p.Template == nil {
		return e, nil
	}
	for _, messages := range chats {
		for _, open := range []bool{false, true} {
			rendered, err := p.Template.Render(messages, open)
			if err != nil {
				return nil, err
			}
			e.Chats = append(e.Chats, chat{messages, open, rendered})
		}
	}
	return e, nil
}

func describe(p *policy.Policy, param nn.Param) (tensor, error) {
	values, err := p.Params.Host(param.Name)
	if err != nil {
		return tensor{}, err
	}
	sum, squares := sha256.New(), 0.0
	buf := make([]byte, 0, 4096)
	for block := range slices.Chunk(values, cap(buf)/4) {
		buf = buf[:0]
		for _, v := range block {
			bits := math.Float32bits(v)
			buf = append(buf, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24))
			squares += float64(v) * float64(v)
		}
		sum.Write(buf)
	}
	return tensor{param.Name, param.Shape, hex.EncodeToString(sum.Sum(nil)), math.Sqrt(squares / float64(len(values)))}, nil
}

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

func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
