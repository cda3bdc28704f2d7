package retrieve

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
)

// The passages and scores are those of Anserini 2.3.0 with k1 0.9 and b 0.4. Over all 15,876 questions of the
// shared corpora its first three passages were found equal to ours wherever no scores tie, and its scores to within
// the four decimals it gives; it breaks ties by the text of the id, we by the order of the corpus.
func TestTopThreeEqualAnserini(t *testing.T) {
	indexes := map[string]*BM25{}
	for _, c := range []struct{ set, query, want string }{
		{"xquad_en", "How many points did the Panthers defense surrender?", "0:8.7055 4:5.2431 198:5.1575"},
		{"xquad_en", "How many career sacks did Jared Allen have?", "0:11.2641 198:4.2432 12:3.0067"},
		{"xquad_en", "Who was the receiver on the successful 2-point conversion?", "4:6.5443 1:6.3468 70:4.8032"},
		{"xquad_en", "What was a plugs-out test done to simulate on the LC-34?", "72:16.1597 73:8.671 201:3.2573"},
		{"xquad_en", "How much has global mean surface air temperature changed in the last century?",
			"191:15.9657 193:7.5623 235:5.4674"},
		{"wiki18_pool", "who told the story of the prodigal son", "1:10.8853 0:10.7959 2:10.0327"},
		{"wiki18_pool", "where was the last world cup held and who won", "582:9.7764 580:9.7548 1342:8.7225"},
		{"wiki18_pool", "who has given the theory of unbalanced economic growth",
			"672:13.0649 674:10.096 673:8.4637"},
		{"wiki18_pool", "The Koppen System is a classification system for what?",
			"4478:10.3742 4479:9.6077 4480:8.3675"},
		{"wiki18_pool", "What genre is Pokémon Red and Blue?", "7299:13.2218 7301:11.0941 7300:7.4172"},
		{"hotpotqa", "If Gallu is a demon Lilu is what?", "9:12.5946 5:9.5134 7:6.4938"},
		{"hotpotqa", "Little Caesars and Pizza Hut were founded in the 1950s within a year of each other. " +
			"Which was the first to serve pizza?",
			"979:22.3497 1334:17.7811 971:16.5037"},
		{"hotpotqa", "What giant silverware company was started as a religious Utopian group and was for many years " +
			"run by Pierrepont Noyes?",
			"1992:23.4821 1984:15.2471 1983:13.2446"},
		{"musique", "Who was in charge of the country where the composer of Aschenbrodel was a citizen?",
			"931:7.2751 1823:6.0027 110:5.7443"},
		{"musique", "Who is the owner of the record label that the performer of Better Than Me is signed with?",
			"4166:12.8776 3999:10.9175 4163:9.0098"},
	} {
		if indexes[c.set] == nil {
			passages, err := data.ReadCorpus(testenv.Shared(t, "data", c.set))
			require.NoError(t, err)
			indexes[c.set], err = NewBM25(passages, DefaultBM25())
			require.NoError(t, err)
		}
		var got []string
		for _, p := range search(t, indexes[c.set], c.query, 3) {
			got = append(got, strings.TrimRight(fmt.Sprintf("%s:%.4f", p.ID, p.Score), "0"))
		}
		assert.Equal(t, c.want, strings.Join(got, " "), c.query)
	}
}
