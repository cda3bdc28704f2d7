package data

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
)

// set is a data set that is known by name.
type set struct {
	// folders are other names of its folder.
	folders []string
	// repo is its repository on the hub, files the file of each split there.
	repo  string
	files map[string]string
}

const flashRAG = "RUC-NLPIR/FlashRAG_datasets" // the questions that Search-R1 and others train and evaluate on

// flashSet is a set of that repository with the given splits.
func flashSet(folder string, splits ...string) set {
	s := set{repo: flashRAG, files: map[string]string{}}
	for _, split := range splits {
		s.files[split] = folder + "/" + split + ".jsonl"
	}
	return s
}

func (s set) also(folders ...string) set {
	s.folders = folders
	return s
}

var sets = map[string]set{
	"nq":        flashSet("nq", "train", "dev", "test").also("nq_open"),
	"triviaqa":  flashSet("triviaqa", "train", "dev", "test"),
	"popqa":     flashSet("popqa", "test"),
	"hotpotqa":  flashSet("hotpotqa", "train", "dev"),
	"2wiki":     flashSet("2wikimultihopqa", "train", "dev").also("2wikimultihopqa"),
	"musique":   flashSet("musique", "train", "dev"),
	"bamboogle": flashSet("bamboogle", "test"),
	"squad":     flashSet("squad", "train", "dev"),
	"gsm8k": {repo: "openai/gsm8k", files: map[string]string{
		"train": "main/train-00000-of-00001.parquet", "test": "main/test-00000-of-00001.parquet"}},
	// Search-R1's own mix, in its layout.
	"nq_hotpotqa": {repo: "PeterJinGo/nq_hotpotqa_train", files: map[string]string{
		"train": "train.parquet", "test": "test.parquet"}},
}

// SetNames returns the names of the data sets that the hub has, in alphabetic order.
func SetNames() []string { return slices.Sorted(maps.Keys(sets)) }

// testSplits are the splits that stand for a test, the first that there is.
var testSplits = []string{"test", "dev", "validation", "val"}

// Places says where data sets are looked for by name.
type Places struct {
	// Dir is a folder that holds a folder for each data set; "" if there is none.
	Dir string
	// Hub says how sets are fetched that Dir does not have.
	Hub HubOptions
}

var namePattern = regexp.MustCompile(`^([a-z0-9][a-z0-9_-]*)(?::([a-z0-9_]+))?$`)

// split cuts "name" or "name:split", if it has the form of a name and the set is known or has a folder.
func (p Places) split(value string) (name, split, folder string, named bool) {
	parts := namePattern.FindStringSubmatch(value)
	if parts == nil {
		return "", "", "", false
	}
	name, split = parts[1], parts[2]
	s, known := sets[name]
	if p.Dir != "" {
		for _, candidate := range append([]string{name}, s.folders...) {
			path := filepath.Join(p.Dir, candidate)
			if info, err := os.Stat(path); err == nil && info.IsDir() {
				return name, split, path, true
			}
		}
	}
	return name, split, "", known
}

// Questions returns the file, or folder, and the options with which ReadQuestions reads what a value stands for. That is a
// data set by its name, with a split ("nq:dev") or without, from Dir or else from the hub; every other value is a path,
// and so is one that begins with "./". Without a split it is split that is taken, and for "test" the first of test, dev,
// validation and val that the set has; a folder whose questions lie in one file (qa.jsonl) gives these for training as
// for a test, so that a caller must see to it that they are not used for both.
func (p Places) Questions(ctx context.Context, value, split string) (string, QuestionOptions, error) {
	name, asked, folder, named := p.split(value)
	if !named {
		return value, QuestionOptions{Split: split}, p.misspelt(value)
	}
	if folder != "" {
		path, err := questionFile(folder, asked, split)
		return path, QuestionOptions{Source: name}, err
	}
	s := sets[name]
	candidates := []string{asked}
	if asked == "" {
		candidates = []string{split}
		if split == "test" {
			candidates = testSplits
		}
	}
	for _, candidate := range candidates {
		if file, ok := s.files[candidate]; ok {
			path, err := fetchFile(ctx, s.repo, file, p.Hub)
			if err != nil {
				err = fmt.Errorf("data set %s: %w%s", value, err, p.hint(name))
			}
			return path, QuestionOptions{Source: name}, err
		}
	}
	return "", QuestionOptions{}, fmt.Errorf("data set %s has no split %s; it has %s", name, strings.Join(candidates, " or "),
		strings.Join(slices.Sorted(maps.Keys(s.files)), ", "))
}

// misspelt returns an error, with the nearest name there is, for a value that has the form of a name and is no path.
func (p Places) misspelt(value string) error {
	parts := namePattern.FindStringSubmatch(value)
	if _, err := os.Stat(value); err == nil || parts == nil {
		return nil
	}
	names := SetNames()
	if entries, err := os.ReadDir(p.Dir); err == nil && p.Dir != "" {
		for _, entry := range entries {
			if entry.IsDir() && !slices.Contains(names, entry.Name()) {
				names = append(names, entry.Name())
			}
		}
	}
	nearest := slices.MinFunc(names, func(a, b string) int {
		return levenshtein.ComputeDistance(parts[1], a) - levenshtein.ComputeDistance(parts[1], b)
	})
	return fmt.Errorf("data: %s is neither a file nor a data set; did you mean %s? There are %s", value, nearest,
		strings.Join(names, ", "))
}

// hint says where else the set may be.
func (p Places) hint(name string) string {
	var hint strings.Builder
	if p.Dir == "" {
		fmt.Fprintf(&hint, "; if you have it, name the folder that holds the folder %s (data_dir)", name)
	} else {
		fmt.Fprintf(&hint, "; %s has no folder %s", p.Dir, name)
	}
	if _, err := os.Stat(name); err == nil {
		fmt.Fprintf(&hint, "; the one beside you is ./%s", name)
	}
	return hint.String()
}

// questionFile returns the file of questions in the folder of a set.
func questionFile(folder, asked, split string) (string, error) {
	_, held, err := listFolder(folder)
	if err != nil {
		return "", err
	}
	stems := []string{asked}
	switch {
	case asked != "":
	case split == "test":
		stems = append(slices.Clone(testSplits), "qa", "rows")
	default:
		stems = []string{split, "qa", "rows"}
	}
	for _, stem := range stems {
		for _, ending := range []string{".jsonl", ".parquet"} {
			if _, ok := held[stem+ending]; ok {
				return filepath.Join(folder, stem+ending), nil
			}
		}
	}
	return "", fmt.Errorf("data: folder %s has no %s, as .jsonl or .parquet; it holds: %s", folder, strings.Join(stems, " or "),
		heldNames(held))
}

// Corpus returns the file of passages that a value stands for: that of a data set in Dir by its name, else a path. Corpora
// are not fetched from the hub.
func (p Places) Corpus(value string) (string, error) {
	name, split, folder, named := p.split(value)
	if !named {
		if err := p.misspelt(value); err != nil {
			return "", err
		}
		return CorpusPath(value)
	}
	if split != "" {
		return "", fmt.Errorf("corpus %s: a corpus has no splits; want %s", value, name)
	}
	if folder != "" {
		return CorpusPath(folder)
	}
	return "", fmt.Errorf("corpus %s: passages are not fetched from the hub; give a file of {\"id\", \"contents\"}, or the "+
		"folder of data sets that has it (data_dir)", name)
}

// cached returns a file of a repository's newest snapshot in the cache.
func cached(dir, file string) (string, error) {
	snapshots, err := os.ReadDir(filepath.Join(dir, "snapshots"))
	if err != nil {
		return "", err
	}
	newest, found := int64(0), ""
	for _, s := range snapshots {
		path := filepath.Join(dir, "snapshots", s.Name(), filepath.FromSlash(file))
		if info, err := os.Stat(path); err == nil && (found == "" || info.ModTime().UnixNano() > newest) {
			newest, found = info.ModTime().UnixNano(), path
		}
	}
	if found == "" {
		return "", fmt.Errorf("%s is not in %s: %w", file, dir, fs.ErrNotExist)
	}
	return found, nil
}
