package retrieve

import "fmt"

// Contribution is what one term of a query adds to a passage's score.
type Contribution struct {
	Term string
	// Count is how often the term stands in the query, Frequency how often in the passage.
	Count, Frequency int
	// DocFrequency is the number of passages with the term.
	DocFrequency int
	IDF          float64
	Score        float64
}

// Explanation says how a passage got its score for a query.
type Explanation struct {
	// Score is the score that Search gives; 0 if no term matches.
	Score float64
	// Length is the passage's length in terms as the score sees it, that is, rounded as Lucene does; Average is the
	// mean length of the passages that are not empty.
	Length  int
	Average float64
	// Terms are the terms of the query that the passage holds, those that can add most first.
	Terms []Contribution
}

// Explain takes a score apart. It fails if no passage has the given id.
func (x *BM25) Explain(query, id string) (Explanation, error) {
	doc := -1
	for d := range x.passages {
		if x.passages[d].ID == id {
			doc = d
			break
		}
	}
	if doc < 0 {
		return Explanation{}, fmt.Errorf("retrieve: no passage has the id %q", id)
	}
	out := Explanation{Length: byteToLength(x.lengths[doc]), Average: float64(x.average)}
	sum := 0.0
	for _, t := range x.queryTerms(query) {
		p := x.advance(t.at, t.end, uint32(doc))
		if p == t.end || x.docs[p] != uint32(doc) {
			continue
		}
		part := float64(x.part(t.weight, p))
		sum += part
		out.Terms = append(out.Terms, Contribution{Term: t.text, Count: t.count, Frequency: int(x.freqs[p]),
			DocFrequency: x.starts[t.id+1] - x.starts[t.id], IDF: float64(x.idf(t.id)), Score: part})
	}
	out.Score = float64(float32(sum))
	return out, nil
}
