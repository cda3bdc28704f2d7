package weights

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
)

// folder is a Hugging Face folder with one or more safetensors files.
type folder struct {
	dir    string
	config nn.Config
	files  []*Safetensors
	where  map[string]*Safetensors // by tensor name
}

func (f *folder) Path() string             { return f.dir }
func (f *folder) Config() nn.Config        { return f.config }
func (f *folder) Metadata() map[string]any { return nil }
func (f *folder) Names() []string          { return slices.Sorted(maps.Keys(f.where)) }

func (f *folder) Info(name string) (TensorInfo, bool) {
	file, ok := f.where[name]
	if !ok {
		return TensorInfo{}, false
	}
	return file.Info(name)
}

func (f *folder) Tensor(name string) ([]float32, []int, error) {
	file, ok := f.where[name]
	if !ok {
		return nil, nil, fmt.Errorf("%s: no tensor %q", f.dir, name)
	}
	return file.Tensor(name)
}

func (f *folder) Close() error {
	var errs []error
	for _, file := range f.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// openFolderFile opens one safetensors file with the config.json beside it.
func openFolderFile(path string) (Source, error) {
	dir := filepath.Dir(path)
	cfg, err := readHFConfig(dir)
	if err != nil {
		return nil, fmt.Errorf("%s needs its config.json beside it: %w", path, err)
	}
	return openFiles(dir, cfg, map[string][]string{filepath.Base(path): nil})
}

// openFolder opens model.safetensors or, if that is absent, the shards that model.safetensors.index.json names.
func openFolder(dir string) (Source, error) {
	cfg, err := readHFConfig(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s: there is no config.json, so this is not a Hugging Face model folder%s", dir,
				listOthers(dir))
		}
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, singleFile)); err == nil {
		return openFiles(dir, cfg, map[string][]string{singleFile: nil})
	}
	shards, err := readIndex(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: there is neither %s nor %s%s", dir, singleFile, indexFile, listOthers(dir))
	}
	if err != nil {
		return nil, err
	}
	return openFiles(dir, cfg, shards)
}

// openFiles opens the files and takes from each the tensors that are listed for it, or all if the list is nil.
func openFiles(dir string, cfg nn.Config, files map[string][]string) (Source, error) {
	f := &folder{dir: dir, config: cfg, where: map[string]*Safetensors{}}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		file, err := OpenSafetensors(path)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s is missing, and the index names it; download the model again: %w", path, err)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		f.files = append(f.files, file)
		tensors := files[name]
		if tensors == nil {
			tensors = file.Names()
		}
		for _, tensor := range tensors {
			if _, ok := file.index[tensor]; !ok {
				err := fmt.Errorf("%s: tensor %s is not in it, though the index says so", path, tensor)
				return nil, errors.Join(err, f.Close())
			}
			f.where[tensor] = file
		}
	}
	return f, nil
}

// readIndex returns the tensors of each shard of a folder.
func readIndex(dir string) (map[string][]string, error) {
	path := filepath.Join(dir, indexFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("model folder: %w", err)
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(index.WeightMap) == 0 {
		return nil, fmt.Errorf("%s: weight_map is missing or empty", path)
	}
	shards := map[string][]string{}
	for tensor, file := range index.WeightMap {
		if !filepath.IsLocal(file) || filepath.Base(file) != file {
			return nil, fmt.Errorf("%s: weight_map names %q for %s; want the name of a file in this folder", path, file, tensor)
		}
		shards[file] = append(shards[file], tensor)
	}
	return shards, nil
}

// listOthers names the model files of other kinds that a folder holds, for an error.
func listOthers(dir string) string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	var found []string
	for _, e := range entries {
		switch strings.ToLower(filepath.Ext(e.Name())) {
		case ".gguf", ".safetensors", ".bin", ".pt", ".pth":
			found = append(found, e.Name())
		}
	}
	if len(found) == 0 {
		return ""
	}
	return fmt.Sprintf("; it holds %s: a .gguf or .safetensors file can be opened by its own path, others cannot be read",
		strings.Join(found, ", "))
}
