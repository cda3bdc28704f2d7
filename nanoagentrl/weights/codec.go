package weights

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
)

// codec decodes one storage type. Values are stored in blocks of a fixed number of values and bytes.
type codec struct {
	name                    string
	blockValues, blockBytes int
	// decode fills dst from src; both hold a whole number of blocks. It is nil for a type that is known by size only.
	decode func(dst []float32, src []byte)
}

// chunkBytes is the stored size of the pieces in which goroutines read and decode a tensor: small enough for the
// second-level cache, large enough that a system call does not matter.
const chunkBytes = 256 << 10

var chunkPool = sync.Pool{New: func() any { return new([chunkBytes]byte) }}

// read decodes count values that start at a byte offset, in parallel. count is a multiple of blockValues.
func (c *codec) read(r io.ReaderAt, offset int64, count int) ([]float32, error) {
	out := make([]float32, count)
	blocks := count / c.blockValues
	perChunk := chunkBytes / c.blockBytes
	chunks := (blocks + perChunk - 1) / perChunk

	var next atomic.Int64
	work := func() error {
		buffer := chunkPool.Get().(*[chunkBytes]byte)
		defer chunkPool.Put(buffer)
		for {
			chunk := int(next.Add(1)) - 1
			if chunk >= chunks {
				return nil
			}
			first := chunk * perChunk
			n := min(perChunk, blocks-first)
			src := buffer[:n*c.blockBytes]
			at := offset + int64(first)*int64(c.blockBytes)
			if got, err := r.ReadAt(src, at); got < len(src) {
				if err == nil || errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return fmt.Errorf("read %d of %d bytes at byte %d: %w", got, len(src), at, err)
			}
			c.decode(out[first*c.blockValues:(first+n)*c.blockValues], src)
		}
	}

	workers := min(runtime.GOMAXPROCS(0), chunks)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() { errs[w] = work() })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return out, nil
}
