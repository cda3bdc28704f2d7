package bm25

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

// Explain takes the score of the passage with the given id apart. It fails if there is none; it looks for the id from
// the first passage on.
func (x *Index) Explain(query, id string) (Explanation, error) {
	doc, err := x.docOf(id)
	if err != nil {
		return Explanation{}, err
	}
	if err := x.hold(); err != nil {
		return Explanation{}, err
	}
	defer x.release()
	s := new(scan)
	if err := s.open(x, query); err != nil {
		return Explanation{}, err
	}
	out := Explanation{Length: byteToLength(x.lengths[doc]), Average: float64(x.average)}
	sum := 0.0
	for _, t := range s.terms {
		more, err := t.advance(doc)
		if err != nil {
			return Explanation{}, err
		}
		if !more || t.doc() != doc {
			continue
		}
		part := float64(x.part(t.weight, t.freq(), x.lengths[doc]))
		sum += part
		out.Terms = append(out.Terms, Contribution{Term: t.text, Count: t.count, Frequency: int(t.freq()), DocFrequency: t.df,
			IDF: float64(x.idf(t.df)), Score: part})
	}
	out.Score = float64(float32(sum))
	return out, nil
}

func (x *Index) docOf(id string) (uint32, error) {
	for doc := range x.counts.Passages {
		p, err := x.Passage(doc)
		if err != nil {
			return 0, err
		}
		if p.ID == id {
			return uint32(doc), nil
		}
	}
	return 0, fmt.Errorf("no passage has the id %q", id)
}
