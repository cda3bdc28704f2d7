package envcheck

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gomlx/go-huggingface/hub"
)

// ModelList is a folder and the models in it.
type ModelList struct {
	Folder string  `json:"folder"`
	Found  []Model `json:"found"`
}

// Model is a model on disk.
type Model struct {
	// Name is the path below the folder, or the name on the hub.
	Name string `json:"name"`
	// Format is "gguf", "safetensors" or "damaged".
	Format string `json:"format"`
	Bytes  int64  `json:"bytes"`
}

// DataDir is a folder and the data sets in it.
type DataDir struct {
	Folder string    `json:"folder"`
	Sets   []DataSet `json:"sets"`
}

// DataSet is a file, or a folder with its files, of questions or passages.
type DataSet struct {
	Name  string `json:"name"`
	Files int    `json:"files"`
	Bytes int64  `json:"bytes"`
}

// modelFolder is $NANOAGENTRL_MODELS, or nanoagentrl/models in the user's cache folder.
func modelFolder() string {
	if folder := os.Getenv("NANOAGENTRL_MODELS"); folder != "" {
		return folder
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "nanoagentrl", "models")
}

// hubFolder follows the environment variables of Python's huggingface_hub, as package weights does.
func hubFolder() string {
	if folder := os.Getenv("HF_HUB_CACHE"); folder != "" {
		return folder
	}
	if home := os.Getenv("HF_HOME"); home != "" {
		return filepath.Join(home, "hub")
	}
	return hub.DefaultCacheDir()
}

// findModels lists GGUF files and Hugging Face folders, at most three levels deep, in the order of their names.
func findModels(folder string) []Model {
	found := []Model{}
	walk(folder, 3, func(path string, entry fs.DirEntry) {
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return
		}
		if entry.IsDir() {
			if m, ok := hfFolder(path); ok {
				m.Name = name
				found = append(found, m)
			}
		} else if filepath.Ext(path) == ".gguf" {
			found = append(found, Model{name, ggufFormat(path), fileSize(path)})
		}
	})
	return found
}

// findHubModels lists the models of the cache that Python's huggingface_hub shares: models--<org>--<name>/snapshots/
// <commit>/<files>. Where there are several commits, one that is complete is shown.
func findHubModels(folder string) []Model {
	found := []Model{}
	dirs, _ := filepath.Glob(filepath.Join(folder, "models--*")) // A good pattern.
	for _, dir := range dirs {
		name := strings.ReplaceAll(strings.TrimPrefix(filepath.Base(dir), "models--"), "--", "/")
		snapshots, _ := filepath.Glob(filepath.Join(dir, "snapshots", "*"))
		for _, snapshot := range snapshots {
			m, ok := hfFolder(snapshot)
			if files, _ := filepath.Glob(filepath.Join(snapshot, "*.gguf")); !ok && len(files) > 0 {
				m, ok = Model{Format: ggufFormat(files[0]), Bytes: fileSize(files[0])}, true
			}
			if ok {
				m.Name = name
				found = append(found, m)
				break
			}
		}
	}
	return found
}

// hfFolder describes a folder with config.json and safetensors, which may be links.
func hfFolder(dir string) (Model, bool) {
	if fileSize(filepath.Join(dir, "config.json")) == 0 {
		return Model{}, false
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	m := Model{Format: "safetensors"}
	for _, file := range files {
		m.Bytes += fileSize(file)
	}
	return m, m.Bytes > 0
}

func ggufFormat(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return "damaged"
	}
	defer file.Close()
	var magic [4]byte
	if _, err := io.ReadFull(file, magic[:]); err != nil || string(magic[:]) != "GGUF" {
		return "damaged"
	}
	return "gguf"
}

// findData looks into ./data and into the data of $NANOAGENTRL_SHARED, by default ../shared, where that is there.
func findData(workDir string) []DataDir {
	dirs := []DataDir{{Folder: filepath.Join(workDir, "data")}}
	shared, set := os.LookupEnv("NANOAGENTRL_SHARED")
	if !set {
		shared = filepath.Join(workDir, "..", "shared")
	}
	if shared = filepath.Join(shared, "data"); set || isDir(shared) {
		dirs = append(dirs, DataDir{Folder: shared})
	}
	for i := range dirs {
		if absolute, err := filepath.Abs(dirs[i].Folder); err == nil {
			dirs[i].Folder = absolute
		}
		dirs[i].Sets = dataSets(dirs[i].Folder)
	}
	return dirs
}

func dataSets(folder string) []DataSet {
	sets := []DataSet{}
	entries, _ := os.ReadDir(folder) // A folder that cannot be read has none.
	for _, entry := range entries {
		set := DataSet{Name: entry.Name()}
		path := filepath.Join(folder, entry.Name())
		count := func(path string, entry fs.DirEntry) {
			if !entry.IsDir() && slices.Contains([]string{".jsonl", ".parquet"}, filepath.Ext(path)) {
				set.Files++
				set.Bytes += fileSize(path)
			}
		}
		if isDir(path) {
			walk(path, 3, count)
		} else {
			count(path, entry)
		}
		if set.Files > 0 {
			sets = append(sets, set)
		}
	}
	return sets
}

func hasData(dirs []DataDir) bool {
	return slices.ContainsFunc(dirs, func(d DataDir) bool { return len(d.Sets) > 0 })
}

// walk visits files and folders below a folder in the order of their names, down to a depth. It follows a link that the
// folder itself may be, but none below.
func walk(folder string, depth int, visit func(path string, entry fs.DirEntry)) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return
	}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		visit(path, entry)
		if entry.IsDir() && depth > 1 {
			walk(path, depth-1, visit)
		}
	}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// fileSize is 0 for a file that is not there.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
