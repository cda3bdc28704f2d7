package weights

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
)

// maxHeaderBytes is the largest header that the safetensors format allows.
const maxHeaderBytes = 100_000_000

// safetensorsTypes holds the element sizes of the format's types, and decoders for the floating-point ones.
var safetensorsTypes = map[string]*codec{
	"F64":     {"F64", 1, 8, decodeF64},
	"F32":     {"F32", 1, 4, decodeF32},
	"F16":     {"F16", 1, 2, decodeF16},
	"BF16":    {"BF16", 1, 2, decodeBF16},
	"F8_E4M3": {"F8_E4M3", 1, 1, nil},
	"F8_E5M2": {"F8_E5M2", 1, 1, nil},
	"I64":     {"I64", 1, 8, nil},
	"U64":     {"U64", 1, 8, nil},
	"I32":     {"I32", 1, 4, nil},
	"U32":     {"U32", 1, 4, nil},
	"I16":     {"I16", 1, 2, nil},
	"U16":     {"U16", 1, 2, nil},
	"I8":      {"I8", 1, 1, nil},
	"U8":      {"U8", 1, 1, nil},
	"BOOL":    {"BOOL", 1, 1, nil},
}

// Safetensors is an opened .safetensors file: 8 bytes of header length, a JSON header with types, shapes and offsets,
// then the values. Values are read when they are asked for. Several goroutines may read at once.
type Safetensors struct {
	path     string
	reader   io.ReaderAt
	closer   io.Closer
	base     int64 // offset of the values
	entries  []safetensorsEntry
	index    map[string]int
	metadata map[string]string
}

type safetensorsEntry struct {
	name  string
	codec *codec
	shape []int
	begin int64 // from base
	end   int64
	count int
}

// OpenSafetensors opens a file and checks its header: types, shapes and offsets must agree with each other and with the
// size of the file. The error names the file and what is wrong.
func OpenSafetensors(path string) (*Safetensors, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open safetensors: %w", err)
	}
	stat, err := file.Stat()
	if err == nil {
		var s *Safetensors
		if s, err = parseSafetensors(path, file, stat.Size()); err == nil {
			s.closer = file
			return s, nil
		}
	}
	return nil, errors.Join(err, file.Close())
}

// Names returns the tensors' names in the order of their values.
func (s *Safetensors) Names() []string {
	names := make([]string, len(s.entries))
	for i, e := range s.entries {
		names[i] = e.name
	}
	return names
}

// Metadata returns the file's string metadata, which may be nil.
func (s *Safetensors) Metadata() map[string]string { return s.metadata }

// Info returns what the header says about a tensor.
func (s *Safetensors) Info(name string) (info TensorInfo, ok bool) {
	i, ok := s.index[name]
	if !ok {
		return TensorInfo{}, false
	}
	e := &s.entries[i]
	return TensorInfo{Name: name, StoredName: name, Shape: slices.Clone(e.shape), Type: e.codec.name, File: s.path}, true
}

// Tensor reads one tensor as float32. The caller owns the slices. A tensor of integers is an error.
func (s *Safetensors) Tensor(name string) (data []float32, shape []int, err error) {
	i, ok := s.index[name]
	if !ok {
		return nil, nil, fmt.Errorf("%s: no tensor %q", s.path, name)
	}
	e := &s.entries[i]
	if e.codec.decode == nil {
		return nil, nil, fmt.Errorf("%s: tensor %s has type %s; only F64, F32, F16 and BF16 can be read as weights",
			s.path, name, e.codec.name)
	}
	if data, err = e.codec.read(s.reader, s.base+e.begin, e.count); err != nil {
		return nil, nil, fmt.Errorf("%s: tensor %s: %w", s.path, name, err)
	}
	return data, slices.Clone(e.shape), nil
}

// Close closes the file.
func (s *Safetensors) Close() error {
	if s.closer == nil {
		return nil
	}
	return s.closer.Close()
}

// ReadSafetensors reads all tensors of a file, in the order of their values, and its metadata.
func ReadSafetensors(path string) (tensors []Tensor, metadata map[string]string, err error) {
	s, err := OpenSafetensors(path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, name := range s.Names() {
		data, shape, err := s.Tensor(name)
		if err != nil {
			return nil, nil, err
		}
		tensors = append(tensors, Tensor{Name: name, Shape: shape, Data: data})
	}
	return tensors, s.Metadata(), nil
}

// parseSafetensors reads and checks the header of a file of the given size.
func parseSafetensors(path string, r io.ReaderAt, size int64) (*Safetensors, error) {
	header, err := readSafetensorsHeader(r, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s := &Safetensors{path: path, reader: r, base: 8 + int64(len(header)), index: map[string]int{}}
	if err := s.parseHeader(header); err != nil {
		return nil, fmt.Errorf("%s: safetensors header: %w", path, err)
	}
	if err := s.checkLayout(size); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i, e := range s.entries {
		s.index[e.name] = i
	}
	return s, nil
}

func readSafetensorsHeader(r io.ReaderAt, size int64) ([]byte, error) {
	var prefix [8]byte
	if size < 8 {
		return nil, fmt.Errorf("not a safetensors file, or cut short: it has %d bytes and the header alone has more", size)
	}
	if _, err := r.ReadAt(prefix[:], 0); err != nil {
		return nil, fmt.Errorf("read safetensors header: %w", err)
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	switch {
	case string(prefix[:]) == "version ":
		return nil, errors.New("this is a pointer of Git LFS, not the weights; fetch them with `git lfs pull`")
	case length > maxHeaderBytes:
		return nil, fmt.Errorf("not a safetensors file: its first 8 bytes give a header of %d bytes; at most %d are allowed",
			length, int64(maxHeaderBytes))
	case int64(length) > size-8:
		return nil, fmt.Errorf("truncated safetensors file: the header ends at byte %d, the file has %d bytes; "+
			"download or copy it again", 8+length, size)
	}
	header := make([]byte, length)
	if _, err := r.ReadAt(header, 8); err != nil && !(errors.Is(err, io.EOF) && int64(length) == size-8) {
		return nil, fmt.Errorf("read safetensors header: %w", err)
	}
	return header, nil
}

// parseHeader fills entries and metadata.
func (s *Safetensors) parseHeader(header []byte) error {
	dec := json.NewDecoder(bytes.NewReader(header))
	if token, err := dec.Token(); err != nil || token != json.Delim('{') {
		return errors.New("not a JSON object")
	}
	seen := map[string]bool{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return fmt.Errorf("not valid JSON: %w", err)
		}
		name, _ := token.(string) // keys of an object are strings
		if seen[name] {
			return fmt.Errorf("%q occurs twice", name)
		}
		seen[name] = true
		if name == "__metadata__" {
			if err := dec.Decode(&s.metadata); err != nil {
				return fmt.Errorf("__metadata__ must map strings to strings: %w", err)
			}
			continue
		}
		entry, err := parseSafetensorsEntry(dec)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		entry.name = name
		s.entries = append(s.entries, entry)
	}
	if _, err := dec.Token(); err != nil {
		return fmt.Errorf("not valid JSON: %w", err)
	}
	if rest := header[dec.InputOffset():]; len(bytes.TrimSpace(rest)) > 0 {
		return errors.New("there is something after the JSON object")
	}
	return nil
}

func parseSafetensorsEntry(dec *json.Decoder) (safetensorsEntry, error) {
	var raw struct {
		DType   *string  `json:"dtype"`
		Shape   *[]int   `json:"shape"`
		Offsets *[]int64 `json:"data_offsets"`
	}
	if err := dec.Decode(&raw); err != nil {
		return safetensorsEntry{}, err
	}
	if raw.DType == nil || raw.Shape == nil || raw.Offsets == nil || len(*raw.Offsets) != 2 {
		return safetensorsEntry{}, errors.New("want dtype, shape and two data_offsets")
	}
	c, ok := safetensorsTypes[*raw.DType]
	if !ok {
		return safetensorsEntry{}, fmt.Errorf("unknown type %q; F64, F32, F16 and BF16 can be read", *raw.DType)
	}
	e := safetensorsEntry{codec: c, shape: *raw.Shape, begin: (*raw.Offsets)[0], end: (*raw.Offsets)[1]}
	if e.begin < 0 || e.end < e.begin {
		return safetensorsEntry{}, fmt.Errorf("bad data_offsets [%d, %d]", e.begin, e.end)
	}
	var err error
	if e.count, err = numValues(e.shape, math.MaxInt64/8); err != nil {
		return safetensorsEntry{}, err
	}
	if want := int64(e.count) * int64(c.blockBytes); e.end-e.begin != want {
		return safetensorsEntry{}, fmt.Errorf("%s of shape %v takes %d bytes, data_offsets [%d, %d] give %d",
			c.name, e.shape, want, e.begin, e.end, e.end-e.begin)
	}
	return e, nil
}

// checkLayout sorts the entries by offset and checks that they fill the file without holes or overlaps, as the format
// demands, so that a header and values that do not belong together are noticed.
func (s *Safetensors) checkLayout(size int64) error {
	slices.SortStableFunc(s.entries, func(a, b safetensorsEntry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	end, last := int64(0), "the header"
	for _, e := range s.entries {
		if e.begin != end {
			return fmt.Errorf("safetensors header: tensor %s starts at offset %d, but %s ends at %d", e.name, e.begin, last, end)
		}
		end, last = e.end, e.name
	}
	switch want := s.base + end; {
	case size < want:
		return fmt.Errorf("truncated safetensors file: the header describes %d bytes, the file has %d; "+
			"download or copy it again", want, size)
	case size > want:
		return fmt.Errorf("the safetensors header describes %d bytes, but the file has %d; it is damaged", want, size)
	}
	return nil
}
