package recall

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/report"
)

// Disagreement is a question for which the agent's queries found a gold passage, or one with the answer, and the question
// as it stands did not, or the other way round.
type Disagreement struct {
	ID           string   `json:"question_id"`
	Question     string   `json:"question"`
	Answers      []string `json:"golden_answers"`
	GoldPassages []string `json:"gold_passage_ids"`
	K            int      `json:"k"`
	// Found says who found it: "agent" or "raw"; Metric is gold or answer. Share is that of the episodes that found it.
	Found  string  `json:"found"`
	Metric string  `json:"metric"`
	Share  float64 `json:"agent_share"`
	// RawPassages and AgentPassages are what was found, the agent's for each episode.
	RawPassages   []string   `json:"raw_passages"`
	AgentQueries  [][]string `json:"agent_queries"`
	AgentPassages [][]string `json:"agent_passages"`
}

// Disagreements returns the questions on which the majority of the agent's episodes and the raw question differ at k.
func Disagreements(outcomes []Outcome, k int) (all []Disagreement) {
	for i := range outcomes {
		o := &outcomes[i]
		raw, agent, ok := o.Scores(k)
		if !ok {
			continue
		}
		for _, m := range []struct {
			name       string
			raw, agent float64
		}{{"gold", raw.Gold, agent.Gold}, {"answer", raw.Answer, agent.Answer}} {
			found := ""
			switch {
			case m.raw == 0 && m.agent > 0.5:
				found = "agent"
			case m.raw == 1 && m.agent < 0.5:
				found = "raw"
			default:
				continue
			}
			d := Disagreement{ID: o.Question.ID, Question: o.Question.Text, Answers: o.Question.Answers,
				GoldPassages: o.Question.GoldPassages, K: k, Found: found, Metric: m.name, Share: m.agent,
				RawPassages: idsOf(o.Raw.Passages(k))}
			for i := range o.Agent {
				a := &o.Agent[i]
				d.AgentQueries = append(d.AgentQueries, a.Queries)
				d.AgentPassages = append(d.AgentPassages, idsOf(a.Passages(k)))
			}
			all = append(all, d)
		}
	}
	return all
}

func idsOf(passages []episode.Passage) []string {
	ids := make([]string, len(passages))
	for i, p := range passages {
		ids[i] = p.ID
	}
	return ids
}

// WriteJSONL writes values one a line.
func WriteJSONL[T any](out io.Writer, values []T) error {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for _, v := range values {
		if err := encoder.Encode(v); err != nil {
			return err
		}
	}
	return nil
}

// Figure draws the recall over k, a plot for each metric of all questions: the questions as they stand, and the agent's
// queries on the questions that have a record.
func Figure(title string, rows []Row) (*report.Figure, error) {
	f := &report.Figure{Title: title, Subtitle: "any query of an episode counts; dashed: as they stand, the same questions",
		Keys: []report.Key{{Name: "questions as they stand", Color: report.Color(0)}}, Columns: 3}
	paired := false
	for first := 0; first < len(rows); {
		end := first
		var raw, agent, same report.Points
		for ; end < len(rows) && rows[end].Group == rows[first].Group && rows[end].Metric == rows[first].Metric; end++ {
			row := rows[end]
			raw.X, raw.Y = append(raw.X, float64(row.K)), append(raw.Y, 100*row.Raw)
			if p := row.Paired; p != nil {
				agent.X, agent.Y = append(agent.X, float64(row.K)), append(agent.Y, 100*p.Agent)
				same.X, same.Y = append(same.X, float64(row.K)), append(same.Y, 100*p.Raw)
			}
		}
		if rows[first].Group == "all" {
			plot := report.NewPlot(fmt.Sprintf("%s (%d)", rows[first].Metric, rows[first].Questions), "passages a query", "found, %")
			plot.Y.Min, plot.Y.Max = 0, 100
			report.AddLine(plot, "", 0, raw)
			report.AddDots(plot, "", 0, raw)
			if len(agent.X) > 0 {
				paired = true
				report.AddDashed(plot, "", 0, same)
				report.AddLine(plot, "", 1, agent)
				report.AddDots(plot, "", 1, agent)
			}
			f.Plots = append(f.Plots, plot)
		}
		first = end
	}
	if len(f.Plots) == 0 {
		return nil, errors.New("there is nothing to draw: no question tells a gold passage or an answer")
	}
	f.Columns = min(f.Columns, len(f.Plots))
	if paired {
		f.Keys = append(f.Keys, report.Key{Name: "queries of the agent", Color: report.Color(1)})
	} else {
		f.Subtitle = ""
	}
	return f, nil
}
