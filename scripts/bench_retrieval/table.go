package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// measurement is a line of JSON of a peer, or of ours.
type measurement struct {
	What     string  `json:"what"`
	N        int     `json:"n"`
	Queries  int     `json:"queries"`
	IndexS   float64 `json:"index_s"`
	PeakGiB  float64 `json:"peak_gib"`
	BuildGiB float64 `json:"peak_build_gib"`
	IndexMiB float64 `json:"index_mib"`
	QS       float64 `json:"q_s"`
	SingleQS float64 `json:"single_q_s"`
	SameTop3 float64 `json:"same_top3_as_ours"`
}

// add takes what another line of the same peer says: the largest memory, and what is not known yet.
func (m *measurement) add(other measurement) {
	m.PeakGiB = max(m.PeakGiB, other.PeakGiB, other.BuildGiB)
	m.N, m.Queries = max(m.N, other.N), max(m.Queries, other.Queries)
	m.IndexS, m.IndexMiB = max(m.IndexS, other.IndexS), max(m.IndexMiB, other.IndexMiB)
	m.QS, m.SingleQS, m.SameTop3 = max(m.QS, other.QS), max(m.SingleQS, other.SingleQS), max(m.SameTop3, other.SameTop3)
}

// printTable prints results.jsonl as a Markdown table with a row for each peer.
func printTable(_ context.Context, o *options, out io.Writer) error {
	lines, err := readLines(o.dir, "results.jsonl")
	if err != nil {
		return err
	}
	var rows []*measurement
	of := map[string]*measurement{}
	for i, text := range lines {
		var m measurement
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			return fmt.Errorf("results.jsonl:%d: %w", i+1, err)
		}
		if m.What == "corpus" || m.What == "load" {
			continue
		}
		m.What, _, _ = strings.Cut(m.What, ":")
		if of[m.What] == nil {
			of[m.What] = &measurement{What: m.What}
			rows = append(rows, of[m.What])
		}
		of[m.What].add(m)
	}
	if len(rows) == 0 {
		return errors.New("results.jsonl holds no measurement")
	}
	fmt.Fprintf(out, "| %d passages | index, s | memory, GiB | index, MiB | questions | queries/s | one after the other | "+
		"same first three |\n|---|---|---|---|---|---|---|---|\n", rows[0].N)
	for _, m := range rows {
		same := "–"
		if m.SameTop3 > 0 {
			same = fmt.Sprintf("%.1f %%", 100*m.SameTop3)
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %d | %s | %s | %s |\n", m.What, cell(m.IndexS), cell(m.PeakGiB), cell(m.IndexMiB),
			m.Queries, cell(m.QS), cell(m.SingleQS), same)
	}
	return nil
}

// cell prints a number with four digits, or none that was not measured.
func cell(v float64) string {
	switch {
	case v == 0:
		return "–"
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprint(round(v))
}
