package recall

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// Whatever a file of records holds, it is episodes of the questions, or an error that names the file.
func FuzzReadRecords(f *testing.F) {
	const whole = `{"question_id": "q1", "question": "who?", "stop": "answer", "turns": [{"action": {"kind": "search"}}]}`
	for _, seed := range []string{
		whole, `{"step": 3, "split": "train", "episode": ` + whole + "}\n\n", `{"question_id": "q2", "question": "who?"}` + "\n" + whole,
		`{"question_id": "q1", "question": "who?", "stop": "retriever_error"}`, `{"episode": null}`, `{"episode": {}}`, "[", "null", "", "\xff",
		`{"question_id": 1}`, strings.Repeat("{", 50),
	} {
		f.Add([]byte(seed), 3)
	}
	questions := []data.Question{{ID: "q1", Text: "who?"}}
	f.Fuzz(func(t *testing.T, text []byte, step int) {
		r, err := readRecords("samples.jsonl", strings.NewReader(string(text)), questions, step)
		if err != nil {
			require.ErrorContains(t, err, "samples.jsonl")
			require.NotContains(t, err.Error(), "\n")
			return
		}
		require.Positive(t, r.Episodes)
		require.Len(t, r.ByQuestion["q1"], r.Episodes)
		for _, e := range r.ByQuestion["q1"] {
			require.NotEqual(t, episode.StopRetriever, e.Stop)
			_ = queriesOf(e)
		}
	})
}
