package world

import (
	"slices"
	"strconv"
	"strings"
)

// The words of names and values. A person is a first and a last name, a town a first and a second word; rivers and
// trades are one word. No word stands in two lists, and no two have the same stem.
var (
	firstNames = strings.Fields("Abel Ada Bea Ben Carl Cleo Dan Dora Emil Eva Faye Finn Gina Gus Hana Hugo Ida Ivan " +
		"Jade Jon Kim Kurt Lea Lola Max Milo Nina Nora Olaf Omar Petra Pia Quinn Rex Rosa Sam Stella Tess Theo Uma " +
		"Ursa Vera Vito Walt Wanda Xena Yara Zoe")
	lastNames = strings.Fields("Abbot Ames Archer Baird Bell Birch Boone Chase Clegg Cole Crane Dale Doyle Drake " +
		"Dunn Ellis Ewing Fitch Flint Foley Frost Gibbs Grant Gray Hardy Hill Hobbs Ingram Irwin Jarvis Joyce Keats Kerr " +
		"Knox Lomax Lowe Marsh Mercer Moss Nash Nolan Oakes Orton Pike Pratt Quick Reed Rowan Rusk Shaw Stone Sutton " +
		"Tate Thorne Udall Upton Vance Vogel Wade Wolfe Yates York Zander Zeller")
	townFirst = strings.Fields("Bridge Castle East Fort Glen Great High King Lake Little Long Lower Mill Mount New " +
		"North Old Port Queen Saint South Upper West White")
	townSecond = strings.Fields("Alda Ashby Bodmin Brenn Calder Corvo Dorvik Dunmor Elst Esker Farrow Fennel Garth " +
		"Grell Harrow Hollin Inver Iska Junip Jura Kelso Kirkby Lorne Lund Marl Medway Nessa Norvik Orkel Ostra Pell " +
		"Quarn Rilk Sorrel Tarn Ulver Varda Wexley Yarrow Zennor")
	rivers = strings.Fields("Adur Avon Beane Blyth Camel Cober Dart Derwent Eden Esk Fowey Frome Glyme Gwash Hamble " +
		"Hodder Irt Isis Kennet Lathkill Lune Mease Meon Nene Nidd Otter Ouse Parrett Perrin Ribble Rother Severn " +
		"Swale Tamar Thames Ure Vyrnwy Wye Yare Zwin")
	trades = strings.Fields("baker barber brewer butcher carver cobbler cooper diver dyer farmer fisher gardener " +
		"glazier hatter hunter joiner judge lawyer mason medic miller nurse painter pilot plumber poet porter potter " +
		"printer roofer saddler sailor scribe shepherd singer smith tailor tanner thatcher weaver")
)

// The words of questions and passages, of tags, and of what the environment writes around passages and after an
// invalid action.
var (
	factWords = strings.Fields(`" ") . ? all at born home is knows nobody of river ruler tales teacher the town ` +
		"trade was what where which who")
	tags = strings.Fields("<think> </think> <search> </search> <information> </information> <answer> </answer>")
	// The parts of agent.Observation and agent.Correction, tags taken out.
	protocolWords = strings.Fields("Doc No results found. That was no valid action. To search, write query . To " +
		"answer, answer Then stop. Try again.")
)

// Special are the special tokens of the vocabularies, which come first in them.
var Special = []string{"<unk>", "<pad>", "<bos>", "<eos>"}

// MaxDocs is the number of passages of one search result that FactsVocabulary can number.
const MaxDocs = 10

// FactsVocabulary returns every word of every Facts world, of the prompt that is the question alone, and of what the
// environment writes in an episode, each once, in a fixed order: special tokens, tags, the others sorted.
func FactsVocabulary() []string {
	words := slices.Concat(firstNames, lastNames, townFirst, townSecond, rivers, trades, factWords, protocolWords)
	for i := range MaxDocs {
		words = append(words, strconv.Itoa(i+1)+"(Title:")
	}
	return vocabulary(words)
}

func vocabulary(words []string) []string {
	slices.Sort(words)
	return slices.Concat(Special, tags, slices.Compact(words))
}
