package data

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func numbered(n int) []Question {
	questions := make([]Question, n)
	for i := range questions {
		questions[i] = Question{ID: fmt.Sprint(i), Text: fmt.Sprint("question ", i)}
	}
	return questions
}

func ids(questions []Question) []string {
	out := make([]string, len(questions))
	for i, q := range questions {
		out[i] = q.ID
	}
	return out
}

func TestCursorShufflesEachEpoch(t *testing.T) {
	cursor, err := NewCursor(numbered(20), 1)
	require.NoError(t, err)
	first, second := ids(cursor.Next(20)), ids(cursor.Next(20))
	assert.ElementsMatch(t, ids(numbered(20)), first)
	assert.ElementsMatch(t, first, second)
	assert.NotEqual(t, ids(numbered(20)), first)
	assert.NotEqual(t, first, second)

	other, err := NewCursor(numbered(20), 2)
	require.NoError(t, err)
	assert.NotEqual(t, first, ids(other.Next(20)))
}

// The order is part of what a checkpoint relies on: it must not change between releases.
func TestCursorOrderIsFixed(t *testing.T) {
	cursor, err := NewCursor(numbered(6), 7)
	require.NoError(t, err)
	assert.Equal(t, []string{"4", "2", "1", "5", "3", "0", "3", "2", "4", "0", "1", "5"}, ids(cursor.Next(12)))
}

func TestCursorNextWrapsOverEpochs(t *testing.T) {
	whole, err := NewCursor(numbered(5), 3)
	require.NoError(t, err)
	parts, err := NewCursor(numbered(5), 3)
	require.NoError(t, err)
	var got []string
	for _, n := range []int{3, 0, 4, 12, 1, -1} {
		batch := parts.Next(n)
		assert.Len(t, batch, max(n, 0))
		got = append(got, ids(batch)...)
	}
	assert.Equal(t, ids(whole.Next(20)), got)
	assert.Equal(t, CursorState{Epoch: 3, Position: 5, Size: 5}, parts.State())
}

func TestRestoredCursorContinuesExactly(t *testing.T) {
	for taken := range 17 {
		cursor, err := NewCursor(numbered(5), 3)
		require.NoError(t, err)
		cursor.Next(taken)
		stored, err := json.Marshal(cursor.State())
		require.NoError(t, err)

		var state CursorState
		require.NoError(t, json.Unmarshal(stored, &state))
		resumed, err := NewCursor(numbered(5), 3)
		require.NoError(t, err)
		resumed.Next(2)
		require.NoError(t, resumed.Restore(state))
		assert.Equal(t, ids(cursor.Next(9)), ids(resumed.Next(9)), "after %d", taken)
		assert.Equal(t, cursor.State(), resumed.State())
	}
}

func TestCursorRefusesAPlaceInOtherData(t *testing.T) {
	cursor, err := NewCursor(numbered(5), 3)
	require.NoError(t, err)
	before := cursor.State()
	assert.ErrorContains(t, cursor.Restore(CursorState{Size: 6}), "belongs to 6 questions, but 5 are loaded")
	assert.Error(t, cursor.Restore(CursorState{Position: 6}))
	assert.Error(t, cursor.Restore(CursorState{Position: -1}))
	assert.Error(t, cursor.Restore(CursorState{Epoch: -1}))
	assert.Equal(t, before, cursor.State())
	_, err = NewCursor(nil, 3)
	assert.Error(t, err)
}

func TestHoldoutIsDisjoint(t *testing.T) {
	questions := numbered(30)
	questions[4].Text = "Question  9" // the wording of number 9, but for case and spacing
	for seed := range uint64(20) {
		train, validation, err := Holdout(questions, 10, seed)
		require.NoError(t, err)
		assert.Len(t, validation, 10)
		assert.ElementsMatch(t, ids(questions), append(ids(train), ids(validation)...))
		assert.IsNonDecreasing(t, positions(questions, train))
		inTrain := map[string]bool{}
		for _, q := range train {
			inTrain[q.ID] = true
		}
		assert.Equal(t, inTrain["4"], inTrain["9"], "the same wording on both sides, seed %d", seed)
	}
	_, one, err := Holdout(questions, 10, 1)
	require.NoError(t, err)
	_, again, err := Holdout(questions, 10, 1)
	require.NoError(t, err)
	_, other, err := Holdout(questions, 10, 2)
	require.NoError(t, err)
	assert.Equal(t, one, again)
	assert.NotEqual(t, one, other)
}

func positions(all, part []Question) []int {
	at := map[string]int{}
	for i, q := range all {
		at[q.ID] = i
	}
	var out []int
	for _, q := range part {
		out = append(out, at[q.ID])
	}
	return out
}

func TestHoldoutBounds(t *testing.T) {
	train, validation, err := Holdout(numbered(3), 0, 1)
	require.NoError(t, err)
	assert.Len(t, train, 3)
	assert.Empty(t, validation)
	for _, n := range []int{-1, 3, 4} {
		_, _, err := Holdout(numbered(3), n, 1)
		assert.Error(t, err, "%d of 3", n)
	}
	same := []Question{{ID: "a", Text: "x"}, {ID: "b", Text: "X"}, {ID: "c", Text: "x "}}
	_, _, err = Holdout(same, 2, 1)
	assert.ErrorContains(t, err, "too many share their wording")
}
