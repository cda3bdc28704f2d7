package weights

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// Tensor is one named float32 tensor, in row-major order.
type Tensor struct {
	Name  string
	Shape []int
	Data  []float32
	// Read returns the values when they are wanted, if Data is nil: a file can so be written without holding all its
	// tensors at once. It is called once.
	Read func() ([]float32, error)
}

// WriteSafetensors writes tensors to a .safetensors file, with their values rounded to dtype and with string metadata
// (nil for none). The file appears under its name only when it is complete and on disk: the writing goes to
// path + ".tmp", which is removed on an error. An error, such as a full disk, names the path.
func WriteSafetensors(path string, tensors []Tensor, dtype DType, metadata map[string]string) error {
	return writeFile(path, func(w io.Writer) error { return encodeSafetensors(w, tensors, dtype, metadata) })
}

func encodeSafetensors(w io.Writer, tensors []Tensor, dtype DType, metadata map[string]string) error {
	header, err := safetensorsHeader(tensors, dtype, metadata)
	if err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	buffer := make([]byte, encodeValues*dtype.size())
	for i := range tensors {
		if err := writeTensor(w, &tensors[i], dtype, buffer); err != nil {
			return err
		}
	}
	return nil
}

// encodeValues is the number of values that are encoded at a time.
const encodeValues = 64 << 10

func writeTensor(w io.Writer, t *Tensor, dtype DType, buffer []byte) error {
	data := t.Data
	if data == nil && t.Read != nil {
		var err error
		if data, err = t.Read(); err != nil {
			return fmt.Errorf("tensor %s: %w", t.Name, err)
		}
	}
	if n, _ := numValues(t.Shape, math.MaxInt64); n != len(data) {
		return fmt.Errorf("tensor %s: got %d values for shape %v, which has %d", t.Name, len(data), t.Shape, n)
	}
	for len(data) > 0 {
		n := min(encodeValues, len(data))
		out := buffer[:n*dtype.size()]
		if err := dtype.encode(out, data[:n]); err != nil {
			return fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		if _, err := w.Write(out); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// safetensorsHeader returns the length and the JSON header, padded to a multiple of 8 bytes so that values are aligned.
// Tensors keep their order, in the header as in the file.
func safetensorsHeader(tensors []Tensor, dtype DType, metadata map[string]string) ([]byte, error) {
	if err := dtype.check(); err != nil {
		return nil, err
	}
	out := append(make([]byte, 8, 8+128*len(tensors)), '{')
	add := func(name string, value any) error {
		if len(out) > 9 {
			out = append(out, ',')
		}
		for i, v := range []any{name, value} {
			text, err := json.Marshal(v)
			if err != nil {
				return err
			}
			if out = append(out, text...); i == 0 {
				out = append(out, ':')
			}
		}
		return nil
	}
	if metadata != nil {
		if err := add("__metadata__", metadata); err != nil {
			return nil, err
		}
	}
	type entry struct {
		DType   DType    `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	seen := map[string]bool{"__metadata__": true}
	end := int64(0)
	for _, t := range tensors {
		if seen[t.Name] {
			return nil, fmt.Errorf("tensor name %q is reserved or occurs twice", t.Name)
		}
		seen[t.Name] = true
		n, err := numValues(t.Shape, math.MaxInt64/8)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		begin := end
		end += int64(n) * int64(dtype.size())
		if err := add(t.Name, entry{dtype, append([]int{}, t.Shape...), [2]int64{begin, end}}); err != nil {
			return nil, err
		}
	}
	out = append(out, '}')
	for len(out)%8 != 0 {
		out = append(out, ' ')
	}
	if len(out)-8 > maxHeaderBytes {
		return nil, fmt.Errorf("the header would have %d bytes; at most %d are allowed", len(out)-8, maxHeaderBytes)
	}
	binary.LittleEndian.PutUint64(out, uint64(len(out)-8))
	return out, nil
}
