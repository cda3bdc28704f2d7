package weights

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// ggufArrayKind is the type number of arrays among metadata values.
const ggufArrayKind = 9

// ggufKind reads metadata values of one type: a single one, and an array of n.
type ggufKind struct {
	scalar func(p *ggufParser) (any, error)
	array  func(p *ggufParser, n int) (any, error)
}

// ggufKinds holds the readers by type number. Arrays of arrays are possible in the format, but do not occur in models.
var ggufKinds = map[uint32]ggufKind{
	0: kindOf(func(p *ggufParser) (uint8, error) { b, err := p.next(1); return b[0], err }),
	1: kindOf(func(p *ggufParser) (int8, error) { b, err := p.next(1); return int8(b[0]), err }),
	2: kindOf(func(p *ggufParser) (uint16, error) { b, err := p.next(2); return binary.LittleEndian.Uint16(b), err }),
	3: kindOf(func(p *ggufParser) (int16, error) {
		b, err := p.next(2)
		return int16(binary.LittleEndian.Uint16(b)), err
	}),
	4:  kindOf((*ggufParser).uint32),
	5:  kindOf(func(p *ggufParser) (int32, error) { v, err := p.uint32(); return int32(v), err }),
	6:  kindOf(func(p *ggufParser) (float32, error) { v, err := p.uint32(); return math.Float32frombits(v), err }),
	7:  kindOf(func(p *ggufParser) (bool, error) { b, err := p.next(1); return b[0] != 0, err }),
	8:  kindOf(func(p *ggufParser) (string, error) { return p.string(maxGGUFString) }),
	10: kindOf((*ggufParser).uint64),
	11: kindOf(func(p *ggufParser) (int64, error) { v, err := p.uint64(); return int64(v), err }),
	12: kindOf(func(p *ggufParser) (float64, error) { v, err := p.uint64(); return math.Float64frombits(v), err }),
}

func kindOf[T any](read func(p *ggufParser) (T, error)) ggufKind {
	return ggufKind{
		scalar: func(p *ggufParser) (any, error) { return read(p) },
		array: func(p *ggufParser, n int) (any, error) {
			// Memory grows with what is read, not with what the file claims.
			out := make([]T, 0, min(n, 1<<12))
			for range n {
				v, err := read(p)
				if err != nil {
					return nil, err
				}
				out = append(out, v)
			}
			return out, nil
		},
	}
}

// value reads a metadata value of the type with the given number.
func (p *ggufParser) value(number uint32) (any, error) {
	if number != ggufArrayKind {
		kind, ok := ggufKinds[number]
		if !ok {
			return nil, fmt.Errorf("type number %d is unknown; the file is corrupt", number)
		}
		return kind.scalar(p)
	}
	element, err := p.uint32()
	if err != nil {
		return nil, err
	}
	kind, ok := ggufKinds[element]
	if !ok {
		return nil, fmt.Errorf("arrays of type number %d cannot be read", element)
	}
	n, err := p.uint64()
	if err != nil {
		return nil, err
	}
	if left := p.size - p.pos; n > maxGGUFArray || int64(n) > left {
		return nil, fmt.Errorf("an array of %d elements, with %d bytes left in the file; it is truncated or corrupt", n, left)
	}
	return kind.array(p, int(n))
}

// string reads a length and that many bytes, at most limit.
func (p *ggufParser) string(limit uint64) (string, error) {
	n, err := p.uint64()
	if err != nil {
		return "", err
	}
	if left := p.size - p.pos; n > limit || int64(n) > left {
		return "", fmt.Errorf("a string of %d bytes, with %d left in the file; it is truncated or corrupt", n, left)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(p.r, text); err != nil {
		return "", err
	}
	p.pos += int64(n)
	return string(text), nil
}

func (p *ggufParser) uint32() (uint32, error) {
	b, err := p.next(4)
	return binary.LittleEndian.Uint32(b), err
}

func (p *ggufParser) uint64() (uint64, error) {
	b, err := p.next(8)
	return binary.LittleEndian.Uint64(b), err
}

// next reads n <= 8 bytes into a buffer that the following call overwrites. After an error its contents mean nothing.
func (p *ggufParser) next(n int) ([]byte, error) {
	b := p.scratch[:n]
	if _, err := io.ReadFull(p.r, b); err != nil {
		return b, err
	}
	p.pos += int64(n)
	return b, nil
}
