package data

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The words of the tiny world and of the tiny sums.
var (
	tinyFirst  = strings.Fields("Ada Ben Cleo Dan Eva Finn Gina Hugo Ida Jon Kim Lea")
	tinyLast   = strings.Fields("Bell Cole Dale Frost Gray Hill Kerr Lake Moss Reed Stone West")
	tinyTowns  = strings.Fields("Alton Borden Corby Derby Elgin Fulda Genoa Hilo Izmir Jena")
	tinyTrades = strings.Fields("baker carver farmer glazier mason miller painter smith tailor weaver")
	tinyThings = strings.Fields("apples books coins pens shells")
	tinyOthers = strings.Fields("\" . ? a and as born finds has how in is loses many more now of the them trade was " +
		"what where works")
)

// tinyLargest is the largest number in the tiny sums.
const tinyLargest = 20

// TinyPeople is the largest number of people TinyWorld can make.
const TinyPeople = 144

// TinyWorld makes a small world for dry runs and tests: n people (at most TinyPeople) with a town and a trade each,
// one passage a person and two questions a person, in that order. The same seed gives the same world. All words are in
// TinyVocabulary, set apart by spaces, with the two quotes around a title as the only exception.
func TinyWorld(seed uint64, n int) (corpus []Passage, questions []Question) {
	random := randomSource(seed, worldStream)
	people := random.Perm(len(tinyFirst) * len(tinyLast))
	for i, person := range people[:min(max(n, 0), TinyPeople)] {
		id := strconv.Itoa(i)
		name := tinyFirst[person/len(tinyLast)] + " " + tinyLast[person%len(tinyLast)]
		town := tinyTowns[random.IntN(len(tinyTowns))]
		trade := tinyTrades[random.IntN(len(tinyTrades))]
		facts := []string{
			fmt.Sprintf("%s was born in %s .", name, town),
			fmt.Sprintf("%s works as a %s .", name, trade),
		}
		if random.IntN(2) == 1 {
			slices.Reverse(facts)
		}
		corpus = append(corpus, Passage{ID: id, Contents: fmt.Sprintf("\"%s\"\n%s %s", name, facts[0], facts[1])})
		ask := func(kind, text, answer string) {
			questions = append(questions, Question{ID: "tiny_" + id + "_" + kind, Text: text, Answers: []string{answer},
				Source: "tiny_world", GoldPassages: []string{id}, Kind: kind})
		}
		ask("town", fmt.Sprintf("where was %s born ?", name), town)
		ask("trade", fmt.Sprintf("what is the trade of %s ?", name), trade)
	}
	return corpus, questions
}

// TinyMath makes n different sums in words (at most 5,000) in the manner of GSM8K, with numbers up to 20 and Source
// "gsm8k". The same seed gives the same sums. All words are in TinyVocabulary.
func TinyMath(seed uint64, n int) []Question {
	random := randomSource(seed, mathStream)
	seen := map[string]bool{}
	var questions []Question
	for len(questions) < min(n, 5000) {
		name := tinyFirst[random.IntN(len(tinyFirst))]
		thing := tinyThings[random.IntN(len(tinyThings))]
		have := 1 + random.IntN(tinyLargest/2)
		text := fmt.Sprintf("%s has %d %s and ", name, have, thing)
		var result int
		if random.IntN(2) == 0 {
			more := 1 + random.IntN(tinyLargest/2)
			text += fmt.Sprintf("finds %d more .", more)
			result = have + more
		} else {
			fewer := random.IntN(have + 1)
			text += fmt.Sprintf("loses %d of them .", fewer)
			result = have - fewer
		}
		text += fmt.Sprintf(" how many %s has %s now ?", thing, name)
		if seen[text] {
			continue
		}
		seen[text] = true
		questions = append(questions, Question{ID: fmt.Sprintf("tiny_math_%d", len(questions)), Text: text,
			Answers: []string{strconv.Itoa(result)}, Source: "gsm8k"})
	}
	return questions
}

// TinyVocabulary returns all words of TinyWorld and TinyMath, sorted, each once.
func TinyVocabulary() []string {
	words := slices.Concat(tinyFirst, tinyLast, tinyTowns, tinyTrades, tinyThings, tinyOthers)
	for i := range tinyLargest + 1 {
		words = append(words, strconv.Itoa(i))
	}
	slices.Sort(words)
	return slices.Compact(words)
}
