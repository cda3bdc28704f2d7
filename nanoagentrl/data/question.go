// Package data reads questions and corpora: search question answering in JSONL and parquet, GSM8K, and small worlds
// made in memory.
package data

import "github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"

// Question is one row of a data set.
type Question struct {
	ID   string `json:"id"`
	Text string `json:"question"`
	// Answers are the accepted answers; for GSM8K the one number.
	Answers []string `json:"golden_answers"`
	// Source names the data set, which decides the reward ("nq", "hotpotqa", "gsm8k" …).
	Source string `json:"data_source"`
	// Prompt is the row's own prompt, used as it stands when the config asks for it; nil when the row has none.
	Prompt []tokenizer.Message `json:"prompt,omitempty"`
	// GoldPassages are the ids of the passages that hold the answer, if known.
	GoldPassages []string `json:"gold_passage_ids,omitempty"`
	// Kind is the data set's own type of question ("bridge", "comparison"), if it has one.
	Kind string `json:"type,omitempty"`
}
