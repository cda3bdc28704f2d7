package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/data"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/retrieve/recall"
)

// checkAll refuses options that are for one data set.
func (s *settings) checkAll() error {
	if s.dataDir == "" {
		return errors.New("--all needs --data_dir DIR")
	}
	for name, value := range map[string]string{"split": s.split, "records": s.records, "corpus": s.corpus, "index": s.index,
		"retriever_url": s.url} {
		if value != "" {
			return fmt.Errorf("--%s does not go with --all", name)
		}
	}
	return nil
}

// measureAll prints a table in Markdown with a row for each folder of data_dir that has a corpus and questions.
func (s *settings) measureAll(ctx context.Context, stdout, stderr io.Writer) error {
	corpora, err := filepath.Glob(filepath.Join(s.dataDir, "*", "corpus.jsonl"))
	if err != nil {
		return err
	}
	if len(corpora) == 0 {
		return fmt.Errorf("no folder of %s has a corpus.jsonl", s.dataDir)
	}
	var ks []string
	for _, k := range s.k {
		ks = append(ks, fmt.Sprint(k))
	}
	at := strings.Join(ks, " / ")
	fmt.Fprintf(stdout, "| data set | passages | questions | gold, first %s | all gold | answer |\n|---|---|---|---|---|---|\n", at)
	for _, corpus := range corpora {
		folder := filepath.Dir(corpus)
		questions, err := data.ReadQuestions(folder, data.QuestionOptions{})
		if err != nil {
			fmt.Fprintf(stderr, "%s: left out: %v\n", folder, err)
			continue
		}
		if s.most > 0 {
			questions = questions[:min(s.most, len(questions))]
		}
		passages, err := data.ReadCorpus(corpus)
		if err != nil {
			return err
		}
		x, err := retrieve.NewBM25(passages, retrieve.BM25Options{K1: s.k1, B: s.b})
		if err != nil {
			return fmt.Errorf("%s: %w", corpus, err)
		}
		outcomes, err := recall.Search(ctx, x, questions, nil, s.k[len(s.k)-1], nil)
		if err != nil {
			return err
		}
		rows := recall.Summarize(outcomes, recall.SummaryOptions{K: s.k, Resamples: s.resamples, Seed: s.seed})
		fmt.Fprintf(stdout, "| %s | %d | %d | %s | %s | %s |\n", filepath.Base(folder), len(passages), len(questions),
			cell(rows, "gold"), cell(rows, "all_gold"), cell(rows, "answer"))
	}
	return nil
}

// cell returns a measure over all questions at each k, in per cent; a dash if no question tells it.
func cell(rows []recall.Row, metric string) string {
	var values []string
	for _, r := range rows {
		if r.Group == "all" && r.Metric == metric {
			values = append(values, fmt.Sprintf("%.1f", 100*r.Raw))
		}
	}
	if len(values) == 0 {
		return "-"
	}
	return strings.Join(values, " / ")
}
