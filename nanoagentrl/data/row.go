package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/tokenizer"
)

// rowLayout is the form in which a row gives its answers.
type rowLayout int

const (
	layoutSearch rowLayout = iota // golden_answers, reward_model, or an answer list
	layoutGSM8K                   // a worked solution that ends in "#### number"
)

// questionRow holds the keys of all layouts; a row has some of them.
type questionRow struct {
	ID             json.RawMessage `json:"id"`
	Question       json.RawMessage `json:"question"`
	Answer         json.RawMessage `json:"answer"`
	GoldenAnswers  json.RawMessage `json:"golden_answers"`
	DataSource     json.RawMessage `json:"data_source"`
	Prompt         json.RawMessage `json:"prompt"`
	RewardModel    json.RawMessage `json:"reward_model"`
	ExtraInfo      json.RawMessage `json:"extra_info"`
	GoldPassageIDs json.RawMessage `json:"gold_passage_ids"`
	GoldPassageID  json.RawMessage `json:"gold_passage_id"`
	Type           json.RawMessage `json:"type"`
}

func decodeQuestion(text []byte) (Question, rowLayout, error) {
	var row questionRow
	if err := decodeObject(text, &row); err != nil {
		return Question{}, 0, err
	}
	var question Question
	var layout rowLayout
	var err error
	if question.ID, err = row.optional(row.ID, "id", true); err != nil {
		return Question{}, 0, err
	}
	if question.Source, err = row.optional(row.DataSource, "data_source", false); err != nil {
		return Question{}, 0, err
	}
	if question.Prompt, err = row.prompt(); err != nil {
		return Question{}, 0, err
	}
	if question.Text, err = row.text(question.Prompt); err != nil {
		return Question{}, 0, err
	}
	if question.Answers, layout, err = row.answers(); err != nil {
		return Question{}, 0, err
	}
	if question.GoldPassages, err = row.goldPassages(); err != nil {
		return Question{}, 0, err
	}
	// Other data sets use "type" for other things: only a string is a kind of question.
	if !isNull(row.Type) && row.Type[0] == '"' {
		if question.Kind, err = oneString(row.Type, "type", false); err != nil {
			return Question{}, 0, err
		}
	}
	return question, layout, nil
}

func (row *questionRow) optional(raw json.RawMessage, key string, numbers bool) (string, error) {
	if isNull(raw) {
		return "", nil
	}
	return oneString(raw, key, numbers)
}

// text returns the question: the row's own, that of its extra_info (verl's GSM8K files), or the last user message.
func (row *questionRow) text(prompt []tokenizer.Message) (string, error) {
	text, err := row.optional(row.Question, "question", false)
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(text) == "" && !isNull(row.ExtraInfo) {
		var extra struct {
			Question string `json:"question"`
		}
		if json.Unmarshal(row.ExtraInfo, &extra) == nil {
			text = extra.Question
		}
	}
	for i := len(prompt) - 1; i >= 0 && strings.TrimSpace(text) == ""; i-- {
		if prompt[i].Role == "user" {
			text = prompt[i].Content
		}
	}
	if strings.TrimSpace(text) == "" {
		return "", errors.New(`no "question"`)
	}
	return text, nil
}

func (row *questionRow) prompt() ([]tokenizer.Message, error) {
	if isNull(row.Prompt) {
		return nil, nil
	}
	var messages []struct {
		Role    *string `json:"role"`
		Content *string `json:"content"`
	}
	if err := json.Unmarshal(row.Prompt, &messages); err != nil {
		return nil, fmt.Errorf(`"prompt" is not a list of {"role", "content"}: %w`, err)
	}
	if len(messages) == 0 {
		return nil, nil
	}
	prompt := make([]tokenizer.Message, len(messages))
	for i, m := range messages {
		if m.Role == nil || m.Content == nil {
			return nil, fmt.Errorf(`"prompt"[%d] lacks "role" or "content"`, i)
		}
		prompt[i] = tokenizer.Message{Role: *m.Role, Content: *m.Content}
	}
	return prompt, nil
}

// answers returns the accepted answers: reward_model.ground_truth, which Search-R1 and verl score by, else
// golden_answers, else answer.
func (row *questionRow) answers() ([]string, rowLayout, error) {
	answers, err := row.groundTruth()
	if err != nil {
		return nil, 0, err
	}
	if len(answers) == 0 {
		if answers, err = stringList(row.GoldenAnswers, "golden_answers"); err != nil {
			return nil, 0, err
		}
	}
	layout := layoutSearch
	if len(answers) == 0 && !isNull(row.Answer) {
		if row.Answer[0] == '"' {
			layout = layoutGSM8K
			answers, err = gsm8kAnswer(row.Answer)
		} else {
			answers, err = stringList(row.Answer, "answer")
		}
		if err != nil {
			return nil, 0, err
		}
	}
	for i, answer := range answers {
		if strings.TrimSpace(answer) == "" {
			return nil, 0, fmt.Errorf("answer %d is empty", i)
		}
	}
	if len(answers) == 0 {
		return nil, 0, errors.New(`no answers: need "golden_answers", "reward_model"."ground_truth" or "answer"`)
	}
	return answers, layout, nil
}

func (row *questionRow) groundTruth() ([]string, error) {
	if isNull(row.RewardModel) {
		return nil, nil
	}
	var model struct {
		GroundTruth json.RawMessage `json:"ground_truth"`
	}
	if err := json.Unmarshal(row.RewardModel, &model); err != nil {
		return nil, fmt.Errorf(`"reward_model" is %s, not an object`, kindOf(row.RewardModel))
	}
	if !isNull(model.GroundTruth) && model.GroundTruth[0] == '{' {
		var truth struct {
			Target json.RawMessage `json:"target"`
		}
		if err := json.Unmarshal(model.GroundTruth, &truth); err != nil {
			return nil, fmt.Errorf(`"reward_model"."ground_truth": %w`, err)
		}
		return stringList(truth.Target, "reward_model.ground_truth.target")
	}
	return stringList(model.GroundTruth, "reward_model.ground_truth")
}

func gsm8kAnswer(raw json.RawMessage) ([]string, error) {
	solution, err := oneString(raw, "answer", false)
	if err != nil {
		return nil, err
	}
	mark := strings.LastIndex(solution, "####")
	if mark < 0 {
		return nil, errors.New(`"answer" has no "#### number" as GSM8K has it; give other answers as "golden_answers"`)
	}
	number := strings.TrimSpace(solution[mark+len("####"):])
	if !strings.ContainsAny(number, "0123456789") {
		return nil, fmt.Errorf(`"answer" has %q after its "####", not a number`, number)
	}
	return []string{number}, nil
}

func (row *questionRow) goldPassages() ([]string, error) {
	ids, err := stringList(row.GoldPassageIDs, "gold_passage_ids")
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		ids, err = stringList(row.GoldPassageID, "gold_passage_id")
	}
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	return ids, nil
}
