package world

import (
	"slices"
	"sync"
)

// Kind says what a name names.
type Kind string

// The kinds of entities that facts are told of.
const (
	Person Kind = "person"
	Town   Kind = "town"
)

// name is the places of the two words of a name in the lists of its kind.
type name [2]int

// lists returns the words that names of a kind are made of.
func (k Kind) lists() (first, second []string) {
	if k == Town {
		return townFirst, townSecond
	}
	return firstNames, lastNames
}

func (k Kind) write(n name) string {
	first, second := k.lists()
	return first[n[0]] + " " + second[n[1]]
}

// pools holds the names of each kind and split in a fixed order: of every eight names five are for training, one for
// validation, two for tests.
var pools = sync.OnceValue(func() map[Kind]map[Split][]name {
	all := map[Kind]map[Split][]name{}
	for stream, k := range []Kind{Person, Town} {
		all[k] = map[Split][]name{}
		first, second := k.lists()
		rng := source(uint64(stream), partitionStream, "")
		for i, place := range rng.Perm(len(first) * len(second)) {
			split := [...]Split{Train, Train, Val, Train, Test, Train, Train, Test}[i%8]
			all[k][split] = append(all[k][split], name{place / len(second), place % len(second)})
		}
	}
	return all
})

// pool returns all names of a kind in a split. The slice must not be changed.
func pool(k Kind, split Split) []name { return pools()[k][split] }

// Names returns all names of a kind that a split may use, in a fixed order. A world draws some of them.
func Names(k Kind, split Split) []string {
	var written []string
	for _, n := range pool(k, split) {
		written = append(written, k.write(n))
	}
	return written
}

// covering reorders shuffled names so that the first ones hold every word: names of two new words first, then names of
// one, then the rest.
func covering(names []name) []name {
	var ordered []name
	seen := [2]map[int]bool{{}, {}}
	left := names
	for _, fresh := range []int{2, 1, 0} {
		var later []name
		for _, n := range left {
			count := 0
			for i := range n {
				if !seen[i][n[i]] {
					count++
				}
			}
			if count < fresh {
				later = append(later, n)
				continue
			}
			seen[0][n[0]], seen[1][n[1]] = true, true
			ordered = append(ordered, n)
		}
		left = later
	}
	return slices.Clip(ordered)
}
