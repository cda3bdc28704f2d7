package nn

import (
	"fmt"

	"github.com/gomlx/gomlx/pkg/core/tensors"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
)

// Row is one token sequence and which of its tokens are wanted: those with Mask 1, whose log-probability given all
// tokens before is computed. Mask[0] must be 0, since nothing comes before it.
type Row struct {
	IDs  []int
	Mask []uint8
}

// Batch holds rows padded to one width. Padding is decided by position, never by the token's id.
type Batch struct {
	// Rows and Width are the padded numbers of rows and tokens.
	Rows, Width int
	// Wanted is the number of tokens whose log-probability is computed. They are ordered by row, then by place.
	Wanted int

	ids, valid, positions []int32 // [Rows*Width]
	// before[j] is the flat place from which wanted token j is predicted, labels[j] its id.
	before, labels []int32
}

// NewBatch pads rows to width tokens, at the end or, with left, at the front; a width of 0 takes the next bucket above
// the longest row. Position ids count the valid tokens of each row from 0.
func NewBatch(rows []Row, width int, left bool) (*Batch, error) {
	longest := 1
	for i, r := range rows {
		if len(r.IDs) != len(r.Mask) {
			return nil, fmt.Errorf("row %d has %d tokens and a mask of %d", i, len(r.IDs), len(r.Mask))
		}
		if len(r.Mask) > 0 && r.Mask[0] != 0 {
			return nil, fmt.Errorf("row %d asks for the log-probability of its first token, which nothing precedes", i)
		}
		longest = max(longest, len(r.IDs))
	}
	if width == 0 {
		width = Bucket(longest)
	}
	if longest > width {
		return nil, fmt.Errorf("a row of %d tokens does not fit a width of %d", longest, width)
	}
	b := &Batch{Rows: len(rows), Width: width}
	b.ids, b.valid = make([]int32, len(rows)*width), make([]int32, len(rows)*width)
	b.positions = make([]int32, len(rows)*width)
	for i, r := range rows {
		start := i * width
		if left {
			start += width - len(r.IDs)
		}
		for t, id := range r.IDs {
			b.ids[start+t], b.valid[start+t], b.positions[start+t] = int32(id), 1, int32(t)
			if r.Mask[t] != 0 {
				b.before = append(b.before, int32(start+t-1))
				b.labels = append(b.labels, int32(id))
			}
		}
	}
	b.Wanted = len(b.labels)
	return b, nil
}

// Bucket rounds a length up so that few different shapes have to be compiled.
func Bucket(n int) int {
	step := 16
	switch {
	case n > 512:
		step = 128
	case n > 256:
		step = 64
	case n > 64:
		step = 32
	}
	return (n + step - 1) / step * step
}

// inputs are the device tensors of a batch.
type inputs struct{ ids, valid, cos, sin *tensors.Tensor }

func (in inputs) free() { device.Free(in.ids, in.valid, in.cos, in.sin) }

func (b *Batch) upload(dev *device.Device, cfg *Config) (in inputs, err error) {
	half := cfg.HeadDim / 2
	cos, sin := Rotary(cfg, b.positions)
	if in.ids, err = device.Upload(dev, b.ids, b.Rows*b.Width, 1); err != nil {
		return in, err
	}
	if in.valid, err = device.Upload(dev, b.valid, b.Rows, b.Width); err != nil {
		return in, err
	}
	if in.cos, err = device.Upload(dev, cos, b.Rows, b.Width, half); err != nil {
		return in, err
	}
	in.sin, err = device.Upload(dev, sin, b.Rows, b.Width, half)
	return in, err
}
