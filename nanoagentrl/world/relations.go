package world

import (
	"fmt"
	"slices"
	"strings"
)

// Relation is a word that connects an entity with a value: "Ada Bell born Port Alda".
type Relation string

// The relations of people and of towns.
const (
	Born    Relation = "born"
	Home    Relation = "home"
	Trade   Relation = "trade"
	Teacher Relation = "teacher"
	River   Relation = "river"
	Ruler   Relation = "ruler"
)

// Relations lists the relations that an entity of a kind has, one fact each.
func Relations(k Kind) []Relation {
	if k == Town {
		return []Relation{River, Ruler}
	}
	return []Relation{Born, Home, Trade, Teacher}
}

// Of returns the kind of entity that has the relation.
func (r Relation) Of() Kind {
	if r == River || r == Ruler {
		return Town
	}
	return Person
}

// Leads returns the kind of the values, and false if they are no entities but plain words.
func (r Relation) Leads() (Kind, bool) {
	switch r {
	case Born, Home:
		return Town, true
	case Teacher, Ruler:
		return Person, true
	}
	return "", false
}

// Values returns everything that the relation can lead to in a split, in a fixed order.
func (r Relation) Values(split Split) []string {
	switch k, entity := r.Leads(); {
	case entity:
		return Names(k, split)
	case r == Trade:
		return slices.Clone(trades)
	default:
		return slices.Clone(rivers)
	}
}

// aliases returns the accepted forms of a value of the relation.
func (r Relation) aliases(value string) []string {
	if r == River {
		return []string{value, "river " + value}
	}
	return []string{value}
}

// Ask writes the question that leads from an entity along relations, one or two of them:
//
//	Ask("Ada Bell", Born)            where was Ada Bell born ?
//	Ask("Ada Bell", Teacher, Born)   where was the teacher of Ada Bell born ?
//	Ask("Ada Bell", Home, River)     which river is at the home of Ada Bell ?
func Ask(subject string, path ...Relation) string {
	for _, r := range path[:len(path)-1] {
		subject = r.phrase(subject)
	}
	switch path[len(path)-1] {
	case Born:
		return fmt.Sprintf("where was %s born ?", subject)
	case Home:
		return fmt.Sprintf("where is the home of %s ?", subject)
	case Trade:
		return fmt.Sprintf("what is the trade of %s ?", subject)
	case River:
		return fmt.Sprintf("which river is at %s ?", subject)
	default: // Teacher, Ruler
		return fmt.Sprintf("who is the %s of %s ?", path[len(path)-1], subject)
	}
}

// phrase describes the value of a fact without saying it.
func (r Relation) phrase(subject string) string {
	switch r {
	case Born:
		return fmt.Sprintf("the town where %s was born", subject)
	case River:
		return fmt.Sprintf("the river at %s", subject)
	default:
		return fmt.Sprintf("the %s of %s", r, subject)
	}
}

// paths lists the ways from an entity of kind k over the given number of hops.
func paths(k Kind, hops int) (all [][]Relation) {
	for _, r := range Relations(k) {
		if hops == 1 {
			all = append(all, []Relation{r})
		} else if next, entity := r.Leads(); entity {
			for _, rest := range paths(next, hops-1) {
				all = append(all, append([]Relation{r}, rest...))
			}
		}
	}
	return all
}

// Paths lists the ways from an entity of kind k over two relations.
func Paths(k Kind) [][]Relation { return paths(k, 2) }

// Fact is one thing that is true in a world.
type Fact struct {
	Subject  string
	Relation Relation
	Value    string
}

// String writes the fact as it stands in passages, without the full stop: "Ada Bell born Port Alda".
func (f Fact) String() string { return fmt.Sprintf("%s %s %s", f.Subject, f.Relation, f.Value) }

// Contents returns a passage with the given title and sentences, in the form of Search-R1's corpora. The title's words
// are set apart from its quotes, so that a word-level tokenizer needs no second form of each.
func Contents(title string, sentences ...string) string {
	return fmt.Sprintf("\" %s \"\n%s .", title, strings.Join(sentences, " . "))
}

// ReadFacts returns the facts that a text tells, in its order: a passage, a whole search result, or a thought. What is
// no fact, such as a title, is passed over.
func ReadFacts(text string) []Fact {
	words := strings.Fields(text)
	var facts []Fact
	for i := 2; i+1 < len(words); i++ {
		r := Relation(words[i])
		if !slices.Contains(Relations(Person), r) && !slices.Contains(Relations(Town), r) {
			continue
		}
		size := 1
		if _, entity := r.Leads(); entity {
			size = 2
		}
		if i+size >= len(words) || !isName(r.Of(), words[i-2:i]) {
			continue
		}
		value := words[i+1 : i+1+size]
		if k, entity := r.Leads(); entity && !isName(k, value) {
			continue
		} else if !entity && !slices.Contains(r.Values(Train), value[0]) {
			continue
		}
		facts = append(facts, Fact{words[i-2] + " " + words[i-1], r, strings.Join(value, " ")})
	}
	return facts
}

func isName(k Kind, words []string) bool {
	first, second := k.lists()
	return slices.Contains(first, words[0]) && slices.Contains(second, words[1])
}
