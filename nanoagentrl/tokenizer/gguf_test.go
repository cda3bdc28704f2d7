package tokenizer

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/testenv"
)

// The two real models; their tokenizers are what the vectors in the shared folder were made with.
const (
	smolModel = "SmolLM2-135M-Instruct.Q4_1.gguf"
	qwenModel = "qwen2.5-coder-0.5b-instruct.gguf"
)

// ggufTokenizer reads a model's tokenizer once for all tests.
func ggufTokenizer(t testing.TB, model string) *BPE {
	t.Helper()
	path := testenv.Model(t, model)
	if b, ok := loadedModels[model]; ok {
		return b
	}
	b, err := FromGGUF(readMetadata(t, path))
	require.NoError(t, err)
	loadedModels[model] = b
	return b
}

var loadedModels = map[string]*BPE{}

// readMetadata reads the metadata of a little-endian GGUF file, version 2 or 3, and nothing else of it.
func readMetadata(t testing.TB, path string) map[string]any {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	r := &metadataReader{r: bufio.NewReaderSize(f, 1<<20)}
	meta, err := r.read()
	require.NoError(t, err)
	return meta
}

type metadataReader struct {
	r   io.Reader
	err error
}

func (r *metadataReader) read() (map[string]any, error) {
	if magic := string(r.bytes(4)); magic != "GGUF" {
		return nil, fmt.Errorf("magic %q: %w", magic, r.err)
	}
	_ = r.uint(4) // version
	_ = r.uint(8) // tensors
	meta := map[string]any{}
	for range r.uint(8) {
		key := r.text()
		meta[key] = r.value(r.uint(4))
		if r.err != nil {
			return nil, fmt.Errorf("%s: %w", key, r.err)
		}
	}
	return meta, nil
}

func (r *metadataReader) bytes(n uint64) []byte {
	buf := make([]byte, n)
	if r.err == nil {
		_, r.err = io.ReadFull(r.r, buf)
	}
	return buf
}

func (r *metadataReader) uint(size uint64) uint64 {
	var buf [8]byte
	copy(buf[:], r.bytes(size))
	return binary.LittleEndian.Uint64(buf[:])
}

func (r *metadataReader) text() string { return string(r.bytes(r.uint(8))) }

// value reads a value; of arrays only those of strings and 32-bit numbers, of scalars floats as their bits.
func (r *metadataReader) value(kind uint64) any {
	switch kind {
	case 0, 1:
		return uint8(r.uint(1))
	case 2, 3:
		return uint16(r.uint(2))
	case 4, 6:
		return uint32(r.uint(4))
	case 5:
		return int32(r.uint(4))
	case 7:
		return r.uint(1) != 0
	case 8:
		return r.text()
	case 10, 11, 12:
		return r.uint(8)
	case 9:
		element, n := r.uint(4), r.uint(8)
		if element == 8 {
			list := make([]string, n)
			for i := range list {
				list[i] = r.text()
			}
			return list
		}
		list := make([]int32, n)
		for i := range list {
			list[i] = int32(r.uint(4))
		}
		return list
	}
	r.err = fmt.Errorf("unknown type %d", kind)
	return nil
}
