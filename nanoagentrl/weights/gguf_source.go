package weights

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
)

const ropeTable = "rope_freqs.weight"

// ggufSource is an opened GGUF model.
type ggufSource struct {
	path    string
	reader  io.ReaderAt
	closer  io.Closer
	file    *ggufFile
	config  nn.Config
	tensors map[string]*ggufTensor // by Hugging Face name
}

func openGGUF(path string) (Source, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open GGUF: %w", err)
	}
	stat, err := file.Stat()
	if err == nil {
		var s *ggufSource
		if s, err = newGGUF(path, file, stat.Size()); err == nil {
			s.closer = file
			return s, nil
		}
	}
	return nil, errors.Join(err, file.Close())
}

// newGGUF reads header and configuration of a GGUF file of the given size.
func newGGUF(path string, r io.ReaderAt, size int64) (*ggufSource, error) {
	file, err := parseGGUF(r, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s := &ggufSource{path: path, reader: r, file: file, tensors: map[string]*ggufTensor{}}
	var divisors []float32
	for i := range file.tensors {
		t := &file.tensors[i]
		if t.name != ropeTable {
			s.tensors[hfName(t.name)] = t
			continue
		}
		if divisors, err = t.codec.read(r, t.offset, t.count); err != nil {
			return nil, fmt.Errorf("%s: tensor %s: %w", path, t.name, err)
		}
	}
	if s.config, err = ggufConfig(file, divisors); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func (s *ggufSource) Path() string             { return s.path }
func (s *ggufSource) Config() nn.Config        { return s.config }
func (s *ggufSource) Metadata() map[string]any { return s.file.metadata }
func (s *ggufSource) Names() []string          { return slices.Sorted(maps.Keys(s.tensors)) }

func (s *ggufSource) Info(name string) (TensorInfo, bool) {
	t, ok := s.tensors[name]
	if !ok {
		return TensorInfo{}, false
	}
	return TensorInfo{Name: name, StoredName: t.name, Shape: slices.Clone(t.shape), Type: t.codec.name, File: s.path}, true
}

func (s *ggufSource) Tensor(name string) ([]float32, []int, error) {
	t, ok := s.tensors[name]
	if !ok {
		return nil, nil, fmt.Errorf("%s: no tensor %q", s.path, name)
	}
	data, err := t.codec.read(s.reader, t.offset, t.count)
	if err == nil {
		data, err = s.unpermute(name, t, data)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: tensor %s: %w", s.path, t.name, err)
	}
	return data, slices.Clone(t.shape), nil
}

func (s *ggufSource) Close() error {
	if s.closer == nil {
		return nil
	}
	return s.closer.Close()
}

// unpermute restores the order of rows of the query and key projections of the llama architecture. Hugging Face rotates
// the pairs (i, i + half) of a head, llama.cpp the pairs (2i, 2i+1), and its converter reorders the rows to match; for
// qwen2 it leaves them.
func (s *ggufSource) unpermute(name string, t *ggufTensor, data []float32) ([]float32, error) {
	heads := s.config.NumHeads
	if strings.Contains(name, ".self_attn.k_proj.") {
		heads = s.config.NumKVHeads
	} else if !strings.Contains(name, ".self_attn.q_proj.") {
		return data, nil
	}
	if s.file.metadata["general.architecture"] != "llama" {
		return data, nil
	}
	rows := t.shape[0]
	if rows%(2*heads) != 0 {
		return nil, fmt.Errorf("%d rows cannot be split among %d heads", rows, heads)
	}
	width, half := len(data)/rows, rows/heads/2
	out := make([]float32, len(data))
	for row := range rows {
		head, pair, second := row/(2*half), row%(2*half)/2, row%2
		to := head*2*half + second*half + pair
		copy(out[to*width:(to+1)*width], data[row*width:(row+1)*width])
	}
	return out, nil
}
