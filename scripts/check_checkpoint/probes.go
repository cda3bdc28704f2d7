package main

import (
	"math/rand/v2"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// samples are texts that tokenizers split in different ways.
var samples = []string{
	"where was Ada Bell born ?",
	"<think> who </think><search>Ada Bell</search>\n\n<information>Doc 1(Title: \"Ada Bell\") Ada Bell was born in " +
		"Jena .</information>\n\n<answer> Jena </answer>",
	"Hello, world! It's 1234 apples, they'll cost $56.78 (or 9%).",
	"  leading, trailing  \t\ttabs\n\n\n  and\r\nlines \n",
	"def f(x):\n    return x->y[0] != 'z' && 1e-10 # naïve café, ½ ²",
	"decomposed: cafe\u0301, o\u0302\u0301, \u212b",
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

// probes returns token sequences of different lengths for a model: texts, and ids from all over the vocabulary, those
// without a token included.
func probes(p *policy.Policy) [][]int {
	corpus, _ := data.TinyWorld(1, 8)
	var passages []string
	for _, passage := range corpus {
		passages = append(passages, passage.Contents)
	}
	random := rand.New(rand.NewPCG(1, 0x7072))
	ids := make([]int, 120)
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
