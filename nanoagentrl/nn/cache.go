package nn

import (
	"fmt"

	"github.com/gomlx/gomlx/pkg/core/dtypes"
	. "github.com/gomlx/gomlx/pkg/core/graph"
	"github.com/gomlx/gomlx/pkg/core/shapes"
	"github.com/gomlx/gomlx/pkg/core/tensors"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
)

// Cache holds the keys and values of the tokens that each of its rows has seen. Where the device shares memory with
// the host, new entries are written in place, so a decoded token costs no copy of the cache; elsewhere a graph merges
// them.
type Cache struct {
	dev          *device.Device
	cfg          *Config
	dtype        dtypes.DType
	rows, length int
	// lens counts the tokens of each row.
	lens []int
	// keys and values hold one tensor [rows, K, length, E] for each layer.
	keys, values []*tensors.Tensor
}

// NewCache allocates room for length tokens in each of rows rows.
func NewCache(params *Params, rows, length int) (*Cache, error) {
	c := &Cache{dev: params.dev, cfg: &params.cfg, dtype: params.dtype, rows: rows, length: length, lens: make([]int, rows)}
	for range c.cfg.NumLayers {
		for _, list := range []*[]*tensors.Tensor{&c.keys, &c.values} {
			t, err := c.dev.Shared(c.shape())
			if err != nil {
				c.Free()
				return nil, err
			}
			*list = append(*list, t)
		}
	}
	return c, nil
}

func (c *Cache) shape() shapes.Shape {
	return shapes.Make(c.dtype, c.rows, c.cfg.NumKVHeads, c.length, c.cfg.HeadDim)
}

// Rows returns the number of rows.
func (c *Cache) Rows() int { return c.rows }

// Length returns the number of tokens each row has room for.
func (c *Cache) Length() int { return c.length }

// Len returns the number of tokens that row has seen.
func (c *Cache) Len(row int) int { return c.lens[row] }

// Free releases the cache.
func (c *Cache) Free() {
	device.Free(c.keys...)
	device.Free(c.values...)
	c.keys, c.values = nil, nil
}

func (c *Cache) longest() int {
	longest := 0
	for _, n := range c.lens {
		longest = max(longest, n)
	}
	return longest
}

func (c *Cache) uploadLens(dev *device.Device) (*tensors.Tensor, error) {
	lens := make([]int32, c.rows)
	for i, n := range c.lens {
		lens[i] = int32(n)
	}
	return device.Upload(dev, lens, c.rows)
}

// write appends the first counts[b] of the new keys and values [B, K, T, E] of layer i to each row b.
func (c *Cache) write(merge *device.Func, i int, keys, values, lens *tensors.Tensor, counts []int) error {
	for row, n := range counts {
		if c.lens[row]+n > c.length {
			return fmt.Errorf("row %d of the cache has room for %d tokens, needs %d", row, c.length, c.lens[row]+n)
		}
	}
	if c.dev.SharedMemory() {
		if err := c.writeInPlace(c.keys[i], keys, counts); err != nil {
			return err
		}
		return c.writeInPlace(c.values[i], values, counts)
	}
	number := make([]int32, len(counts))
	for row, n := range counts {
		number[row] = int32(n)
	}
	n, err := device.Upload(c.dev, number, len(number))
	if err != nil {
		return err
	}
	defer device.Free(n)
	for _, pair := range []struct {
		into  *[]*tensors.Tensor
		fresh *tensors.Tensor
	}{{&c.keys, keys}, {&c.values, values}} {
		out, err := merge.Call((*pair.into)[i], pair.fresh, lens, n)
		if err != nil {
			return err
		}
		device.Free((*pair.into)[i])
		(*pair.into)[i] = out[0]
	}
	return nil
}

// writeInPlace copies the new entries of each row and head to their places in the shared buffer.
func (c *Cache) writeInPlace(into, fresh *tensors.Tensor, counts []int) error {
	width := fresh.Shape().Dim(2)
	entry := c.cfg.HeadDim * c.dtype.Size()
	return fresh.ConstBytes(func(src []byte) {
		_ = into.MutableBytes(func(dst []byte) {
			for row, n := range counts {
				for head := range c.cfg.NumKVHeads {
					line := row*c.cfg.NumKVHeads + head
					from, to := line*width*entry, (line*c.length+c.lens[row])*entry
					copy(dst[to:to+n*entry], src[from:from+n*entry])
				}
			}
		})
	})
}

// cacheWrite is writeInPlace as a graph, for devices without shared memory: cache [B, K, L, E], fresh [B, K, T, E],
// lens and counts [B].
func cacheWrite(cache, fresh, lens, counts *Node) *Node {
	g, b, k := cache.Graph(), cache.Shape().Dim(0), cache.Shape().Dim(1)
	length, width := cache.Shape().Dim(2), fresh.Shape().Dim(2)
	dims := shapes.Make(dtypes.Int32, b, length, width)
	offset := Sub(Iota(g, dims, 1), BroadcastToShape(ExpandAxes(lens, 1, 2), dims)) // [B, L, T]
	token := Iota(g, dims, 2)
	goes := LogicalAnd(Equal(offset, token), LessThan(token, BroadcastToShape(ExpandAxes(counts, 1, 2), dims)))
	route := BroadcastToDims(ExpandAxes(ConvertDType(goes, cache.DType()), 1), b, k, length, width) // [B, K, L, T]
	placed := DotGeneral(route, []int{3}, []int{0, 1}, fresh, []int{2}, []int{0, 1})                // [B, K, L, E]
	taken := ReduceAndKeep(ConvertDType(goes, dtypes.Int32), ReduceSum, -1)                         // [B, L, 1]
	taken = BroadcastToDims(ExpandAxes(taken, 1), cache.Shape().Dimensions...)                      // [B, K, L, E]
	return Where(GreaterThan(taken, ZerosLike(taken)), placed, cache)
}

// RowState is the host copy of one cache row: keys and values of its tokens, [layers][K, tokens, E] each.
type RowState struct {
	Tokens       int
	keys, values [][]byte
}

// Bytes returns the memory a row state takes.
func (s *RowState) Bytes() int {
	if len(s.keys) == 0 {
		return 0
	}
	return 2 * len(s.keys) * len(s.keys[0])
}

// Save copies a row to the host.
func (c *Cache) Save(row int) (*RowState, error) {
	s := &RowState{Tokens: c.lens[row]}
	for i := range c.keys {
		for _, pair := range []struct {
			from *tensors.Tensor
			to   *[][]byte
		}{{c.keys[i], &s.keys}, {c.values[i], &s.values}} {
			err := pair.from.ConstBytes(func(src []byte) { *pair.to = append(*pair.to, c.pack(src, row)) })
			if err != nil {
				return nil, fmt.Errorf("saving row %d of the cache: %w", row, err)
			}
		}
	}
	return s, nil
}

// pack copies the used part of a row, [K, lens[row], E].
func (c *Cache) pack(src []byte, row int) []byte {
	entry := c.cfg.HeadDim * c.dtype.Size()
	used := c.lens[row] * entry
	out := make([]byte, c.cfg.NumKVHeads*used)
	for head := range c.cfg.NumKVHeads {
		from := (row*c.cfg.NumKVHeads + head) * c.length * entry
		copy(out[head*used:(head+1)*used], src[from:from+used])
	}
	return out
}

// Restore fills a row from a saved state.
func (c *Cache) Restore(row int, s *RowState) error {
	if s.Tokens > c.length {
		return fmt.Errorf("a saved row of %d tokens does not fit a cache of %d", s.Tokens, c.length)
	}
	entry := c.cfg.HeadDim * c.dtype.Size()
	used := s.Tokens * entry
	for i := range c.keys {
		for _, pair := range []struct {
			to   *tensors.Tensor
			from []byte
		}{{c.keys[i], s.keys[i]}, {c.values[i], s.values[i]}} {
			err := pair.to.MutableBytes(func(dst []byte) {
				for head := range c.cfg.NumKVHeads {
					at := (row*c.cfg.NumKVHeads + head) * c.length * entry
					copy(dst[at:at+used], pair.from[head*used:(head+1)*used])
				}
			})
			if err != nil {
				return fmt.Errorf("restoring row %d of the cache: %w", row, err)
			}
		}
	}
	c.lens[row] = s.Tokens
	return nil
}

// Permute makes row i what row from[i] was, or empty where from[i] is -1, in place. from must not name a row below its
// own place, so rows only move down.
func (c *Cache) Permute(from []int) error {
	line := c.cfg.NumKVHeads * c.length * c.cfg.HeadDim * c.dtype.Size()
	for i := range c.keys {
		for _, t := range []*tensors.Tensor{c.keys[i], c.values[i]} {
			err := t.MutableBytes(func(data []byte) {
				for row, old := range from {
					if old > row {
						copy(data[row*line:(row+1)*line], data[old*line:(old+1)*line])
					}
				}
			})
			if err != nil {
				return fmt.Errorf("moving rows of the cache: %w", err)
			}
		}
	}
	for row, old := range from {
		if old >= 0 {
			c.lens[row] = c.lens[old]
		} else {
			c.lens[row] = 0
		}
	}
	return nil
}

// Rearranged returns a new cache with the given room, whose row i is row from[i] of c, or empty where from[i] is -1.
// c is freed.
func (c *Cache) Rearranged(params *Params, from []int, length int) (*Cache, error) {
	defer c.Free()
	to, err := NewCache(params, len(from), length)
	if err != nil {
		return nil, err
	}
	entry := c.cfg.HeadDim * c.dtype.Size()
	for i := range c.keys {
		for _, pair := range [][2]*tensors.Tensor{{c.keys[i], to.keys[i]}, {c.values[i], to.values[i]}} {
			err := pair[0].ConstBytes(func(src []byte) {
				_ = pair[1].MutableBytes(func(dst []byte) {
					for row, old := range from {
						if old < 0 {
							continue
						}
						used := c.lens[old] * entry
						for head := range c.cfg.NumKVHeads {
							a := (row*c.cfg.NumKVHeads + head) * length * entry
							b := (old*c.cfg.NumKVHeads + head) * c.length * entry
							copy(dst[a:a+used], src[b:b+used])
						}
					}
				})
			})
			if err != nil {
				to.Free()
				return nil, fmt.Errorf("rearranging the cache: %w", err)
			}
		}
		device.Free(c.keys[i], c.values[i]) // as we go, so that not all of both exist
	}
	for row, old := range from {
		if old >= 0 {
			to.lens[row] = c.lens[old]
		}
	}
	return to, nil
}
