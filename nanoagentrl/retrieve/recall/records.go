package recall

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/episode"
)

// Records are recorded episodes, by the id of their question.
type Records struct {
	ByQuestion map[string][]*episode.Episode
	// Episodes counts those that belong to the questions, Others those that do not, Failed those whose search engine failed,
	// which say nothing and are left out.
	Episodes, Others, Failed int
}

// AnyStep stands for the records of all steps.
const AnyStep = -1

// ReadRecords reads the episodes of questions from a JSONL file: the samples.jsonl of a run folder, whose lines hold an
// "episode" beside its "step", or lines that are Episodes. Only those of one step are taken unless step is AnyStep.
func ReadRecords(path string, questions []data.Question, step int) (*Records, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readRecords(path, file, questions, step)
}

func readRecords(path string, file io.Reader, questions []data.Question, step int) (*Records, error) {
	texts := map[string]string{}
	for _, q := range questions {
		texts[q.ID] = q.Text
	}
	r := &Records{ByQuestion: map[string][]*episode.Episode{}}
	in := bufio.NewReader(file)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			break
		} else if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s:%d: %w", path, number, err)
		}
		if len(line) == 1 {
			continue
		}
		if err := r.add(line, texts, step); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number, err)
		}
	}
	if r.Episodes == 0 {
		return nil, fmt.Errorf("%s holds no episode of these questions (%d of others, %d whose search engine failed)", path, r.Others,
			r.Failed)
	}
	return r, nil
}

func (r *Records) add(line []byte, texts map[string]string, step int) error {
	var sample struct {
		Step    int              `json:"step"`
		Episode *episode.Episode `json:"episode"`
	}
	if err := json.Unmarshal(line, &sample); err != nil {
		return fmt.Errorf("not a record: %w", err)
	}
	e := sample.Episode
	if e == nil {
		e = new(episode.Episode)
		if err := json.Unmarshal(line, e); err != nil {
			return fmt.Errorf("not an episode: %w", err)
		}
		if e.QuestionID == "" {
			return errors.New(`neither an "episode" nor a "question_id"`)
		}
	}
	text, known := texts[e.QuestionID]
	switch {
	case step != AnyStep && sample.Step != step:
	case !known || text != e.Question:
		r.Others++
	case e.Stop == episode.StopRetriever:
		r.Failed++
	default:
		r.Episodes++
		r.ByQuestion[e.QuestionID] = append(r.ByQuestion[e.QuestionID], e)
	}
	return nil
}
