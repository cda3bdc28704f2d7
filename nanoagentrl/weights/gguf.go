package weights

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// Bounds on what a GGUF header may claim. They are far above any real file, and keep a corrupt one from asking for
// more memory than it has bytes.
const (
	maxGGUFKeys    = 1 << 16
	maxGGUFTensors = 1 << 16
	maxGGUFArray   = 1 << 24 // elements; vocabularies have some hundred thousand
	maxGGUFName    = 1 << 10 // bytes in the name of a key or a tensor
	maxGGUFString  = 1 << 24 // bytes
	maxGGUFAlign   = 1 << 16 // bytes
)

// ggufFile is the header of a GGUF file of version 2 or 3.
type ggufFile struct {
	metadata map[string]any
	tensors  []ggufTensor
}

// ggufTensor is a tensor's entry in the header.
type ggufTensor struct {
	name   string
	shape  []int // in row-major order, the reverse of the file's
	codec  *codec
	offset int64 // from the beginning of the file
	count  int
}

func (t *ggufTensor) bytes() int64 {
	return int64(t.count) / int64(t.codec.blockValues) * int64(t.codec.blockBytes)
}

// parseGGUF reads the header of a file of the given size.
func parseGGUF(r io.ReaderAt, size int64) (*ggufFile, error) {
	p := &ggufParser{r: bufio.NewReaderSize(io.NewSectionReader(r, 0, size), 64<<10), size: size}
	file, err := p.file()
	if err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("truncated GGUF file: its %d bytes end within the header; download or copy it again", size)
		}
		return nil, fmt.Errorf("GGUF header at byte %d: %w", p.pos, err)
	}
	return file, nil
}

// ggufParser reads the header in order and never beyond size.
type ggufParser struct {
	r         *bufio.Reader
	pos, size int64
	scratch   [8]byte
}

func (p *ggufParser) file() (*ggufFile, error) {
	tensorCount, keyCount, err := p.preamble()
	if err != nil {
		return nil, err
	}
	file := &ggufFile{metadata: map[string]any{}}
	for range keyCount {
		key, err := p.string(maxGGUFName)
		if err != nil {
			return nil, fmt.Errorf("name of a metadata key: %w", err)
		}
		if _, ok := file.metadata[key]; ok {
			return nil, fmt.Errorf("metadata key %q occurs twice", key)
		}
		kind, err := p.uint32()
		if err == nil {
			file.metadata[key], err = p.value(kind)
		}
		if err != nil {
			return nil, fmt.Errorf("metadata key %q: %w", key, err)
		}
	}
	align, err := file.alignment()
	if err != nil {
		return nil, err
	}
	for range tensorCount {
		t, err := p.tensor()
		if err != nil {
			return nil, err
		}
		if uint64(t.offset)%uint64(align) != 0 {
			return nil, fmt.Errorf("tensor %s: its offset %d is not a multiple of the alignment, %d", t.name, t.offset, align)
		}
		file.tensors = append(file.tensors, t)
	}
	return file, file.place((p.pos+align-1)/align*align, p.size)
}

// preamble reads magic, version and counts.
func (p *ggufParser) preamble() (tensors, keys uint64, err error) {
	magic, err := p.uint32()
	if err != nil {
		return 0, 0, err
	}
	if magic != 0x46554747 {
		return 0, 0, fmt.Errorf("not a GGUF file: it starts with %q", p.scratch[:4])
	}
	version, err := p.uint32()
	if err != nil {
		return 0, 0, err
	}
	switch {
	case version&0xffff == 0:
		return 0, 0, errors.New("this is a big-endian GGUF file; only little-endian ones can be read")
	case version != 2 && version != 3:
		return 0, 0, fmt.Errorf("version %d cannot be read; 2 and 3 can", version)
	}
	if tensors, err = p.uint64(); err == nil {
		keys, err = p.uint64()
	}
	if err == nil && (tensors > maxGGUFTensors || keys > maxGGUFKeys) {
		err = fmt.Errorf("it claims %d tensors and %d metadata keys; the file is corrupt", tensors, keys)
	}
	return tensors, keys, err
}

// tensor reads one tensor's entry; offset is relative to the values until place is called.
func (p *ggufParser) tensor() (ggufTensor, error) {
	name, err := p.string(maxGGUFName)
	if err != nil {
		return ggufTensor{}, fmt.Errorf("name of a tensor: %w", err)
	}
	fail := func(err error) (ggufTensor, error) { return ggufTensor{}, fmt.Errorf("tensor %q: %w", name, err) }
	dims, err := p.uint32()
	if err != nil {
		return fail(err)
	}
	if dims < 1 || dims > 4 {
		return fail(fmt.Errorf("it has %d axes; 1 to 4 are possible", dims))
	}
	t := ggufTensor{name: name, shape: make([]int, dims)}
	for i := range t.shape {
		d, err := p.uint64()
		if err != nil {
			return fail(err)
		}
		if d == 0 || d > math.MaxInt32 {
			return fail(fmt.Errorf("an axis of %d elements", d))
		}
		t.shape[len(t.shape)-1-i] = int(d)
	}
	kind, err := p.uint32()
	if err != nil {
		return fail(err)
	}
	offset, err := p.uint64()
	if err != nil {
		return fail(err)
	}
	if offset > uint64(p.size) {
		return fail(fmt.Errorf("its values start at %d, but the file has only %d bytes; it is truncated or corrupt",
			offset, p.size))
	}
	t.offset = int64(offset)
	if err := t.setType(kind, p.size); err != nil {
		return fail(err)
	}
	return t, nil
}

// setType checks the storage type against the shape. size is that of the file, which bounds the number of values.
func (t *ggufTensor) setType(kind uint32, size int64) (err error) {
	c, ok := ggmlTypes[kind]
	if !ok {
		return fmt.Errorf("storage type number %d is unknown; the file is corrupt or newer than this program", kind)
	}
	if c.decode == nil {
		return fmt.Errorf("storage type %s cannot be read; F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and "+
			"Q6_K can: take another file of the same model, such as its Q8_0 or Q4_K_M", c.name)
	}
	t.codec = c
	if row := t.shape[len(t.shape)-1]; row%c.blockValues != 0 {
		return fmt.Errorf("a row has %d values, which is not a multiple of the %d in a block of %s",
			row, c.blockValues, c.name)
	}
	t.count, err = numValues(t.shape, size*int64(c.blockValues)/int64(c.blockBytes))
	return err
}

// place turns the offsets of the values into offsets from the beginning of the file, and checks that all values lie in
// the file and that no two tensors share bytes.
func (f *ggufFile) place(base, size int64) error {
	order := make([]*ggufTensor, len(f.tensors))
	names := make(map[string]bool, len(f.tensors))
	for i := range f.tensors {
		t := &f.tensors[i]
		if names[t.name] {
			return fmt.Errorf("tensor %q occurs twice", t.name)
		}
		names[t.name] = true
		t.offset += base
		order[i] = t
	}
	slices.SortFunc(order, func(a, b *ggufTensor) int { return cmp.Compare(a.offset, b.offset) })
	end, last := base, ""
	for _, t := range order {
		if t.offset < end {
			return fmt.Errorf("tensors %s and %s overlap", last, t.name)
		}
		if end, last = t.offset+t.bytes(), t.name; end > size {
			return fmt.Errorf("tensor %s ends at byte %d, but the file has only %d: it is truncated; "+
				"download or copy it again", t.name, end, size)
		}
	}
	return nil
}

// alignment returns the alignment of tensors in bytes.
func (f *ggufFile) alignment() (int64, error) {
	value, ok := f.metadata["general.alignment"]
	if !ok {
		return 32, nil
	}
	align, ok := value.(uint32)
	if !ok || align == 0 || align > maxGGUFAlign || align&(align-1) != 0 {
		return 0, fmt.Errorf("general.alignment is %v; want a power of two, at most %d, as uint32", value, maxGGUFAlign)
	}
	return int64(align), nil
}
