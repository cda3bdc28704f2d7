package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"

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
	Tied          bool       `json:"tied"`
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

// sequence holds the log-probability, in nats, of each token but the first, and the likeliest tokens after the last.
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

// expect collects what the policy in memory gives.
func expect(p *policy.Policy, sequences [][]int) (*expected, error) {
	cfg := p.Program.Config()
	_, words := p.Tokenizer.(*tokenizer.Words)
	e := &expected{
		// AutoTokenizer takes a tokenizer of its own for this type, whatever tokenizer_config.json says.
		AutoTokenizer: !words || cfg.ModelType != "qwen2",
		EOS:           cfg.EOS,
		Tied:          cfg.TieEmbeddings,
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
	rms := math.Sqrt(squares / float64(len(values)))
	return tensor{param.Name, param.Shape, hex.EncodeToString(sum.Sum(nil)), rms}, nil
}

func writeJSON(path string, value any) error {
	text, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
