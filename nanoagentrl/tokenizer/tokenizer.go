// Package tokenizer turns text into token ids and back: byte-level BPE as Qwen2, SmolLM2/GPT-2 and Llama 3 use it,
// read from tokenizer.json or from GGUF metadata, and a word-level tokenizer for tiny models.
package tokenizer

// Tokenizer turns text into token ids and back.
type Tokenizer interface {
	// Encode returns the ids of text. Special tokens written in the text ("<|im_end|>") become their own ids. No
	// beginning-of-sequence token is added.
	Encode(text string) []int
	// EncodePlain is Encode for text that comes from outside, such as retrieved passages: special tokens written in
	// it are encoded as ordinary characters, so that a passage cannot end a chat turn.
	EncodePlain(text string) []int
	// Decode returns the text of ids; bytes that are not UTF-8 become U+FFFD.
	Decode(ids []int) string
	// Bytes returns the bytes that one id stands for; they may be a part of a character. Unknown ids give nil.
	Bytes(id int) []byte
	// VocabSize is one more than the largest id.
	VocabSize() int
	// TokenID returns the id of a token by its exact written form, special tokens included.
	TokenID(token string) (id int, ok bool)
	// IsSpecial reports whether id is a special (control) token.
	IsSpecial(id int) bool
}

// Message is one turn of a chat.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}
