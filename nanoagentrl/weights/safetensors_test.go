package weights

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// safetensorsBytes makes a file from a JSON header and values.
func safetensorsBytes(header string, values []byte) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), values...)
}

func TestSafetensorsRoundTripOfOptimiserState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "optimiser.safetensors")
	read := 0
	tensors := []Tensor{
		{Name: "m/a \"quoted\" é", Shape: []int{2, 3}, Data: []float32{1, -2, float32(math.Inf(1)), 1e-45, 0, 6}},
		{Name: "step", Shape: []int{}, Data: []float32{7}},
		{Name: "empty", Shape: []int{0, 4}},
		{Name: "late", Shape: []int{1}, Read: func() ([]float32, error) { read++; return []float32{9}, nil }},
	}
	require.NoError(t, WriteSafetensors(path, tensors, F32, map[string]string{"step": "12", "name": "ü"}))
	assert.Equal(t, 1, read)

	got, metadata, err := ReadSafetensors(path)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"step": "12", "name": "ü"}, metadata)
	require.Len(t, got, 4)
	for i, want := range tensors {
		assert.Equal(t, want.Name, got[i].Name)
		assert.Equal(t, want.Shape, got[i].Shape)
	}
	assert.Equal(t, tensors[0].Data, got[0].Data)
	assert.Equal(t, []float32{7}, got[1].Data)
	assert.Empty(t, got[2].Data)
	assert.Equal(t, []float32{9}, got[3].Data)

	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Zero(t, binary.LittleEndian.Uint64(data)%8, "values are not aligned")
	assert.NoFileExists(t, path+".tmp")
}

func TestSafetensorsReadsEveryFloatType(t *testing.T) {
	values := make([]byte, 0, 22)
	values = binary.LittleEndian.AppendUint64(values, math.Float64bits(-1.5))
	values = binary.LittleEndian.AppendUint32(values, math.Float32bits(2.25))
	values = append(values, 0x00, 0x42, 0x40, 0x40) // 3 as F16, 3 as BF16
	values = append(values, 1, 2, 3, 4)
	path := writeTestFile(t, t.TempDir(), "x.safetensors", string(safetensorsBytes(`{
		"d":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},"s":{"dtype":"F32","shape":[1],"data_offsets":[8,12]},
		"h":{"dtype":"F16","shape":[1],"data_offsets":[12,14]},"b":{"dtype":"BF16","shape":[1],"data_offsets":[14,16]},
		"i":{"dtype":"I32","shape":[],"data_offsets":[16,20]}}  `, values)))
	s, err := OpenSafetensors(path)
	require.NoError(t, err)
	defer s.Close()
	assert.Equal(t, []string{"d", "s", "h", "b", "i"}, s.Names())
	for name, want := range map[string]float32{"d": -1.5, "s": 2.25, "h": 3, "b": 3.0} {
		data, shape, err := s.Tensor(name)
		require.NoError(t, err)
		assert.Equal(t, []float32{want}, data, name)
		assert.Equal(t, []int{1}, shape)
	}
	_, _, err = s.Tensor("i")
	require.ErrorContains(t, err, "tensor i has type I32; only F64, F32, F16 and BF16")
	_, _, err = s.Tensor("nothing")
	require.ErrorContains(t, err, path)
	_, ok := s.Info("nothing")
	assert.False(t, ok)
	info, ok := s.Info("b")
	assert.True(t, ok)
	assert.Equal(t, TensorInfo{Name: "b", StoredName: "b", Shape: []int{1}, Type: "BF16", File: path}, info)
}

func TestSafetensorsHeaderErrorsNameTheFault(t *testing.T) {
	one := `"dtype":"F32","shape":[1],"data_offsets":[0,4]`
	for _, c := range []struct {
		header, want string
		values       int
	}{
		{`{"a":{` + one + `}}`, "", 4},
		{`{"a":{` + one + `}}`, "the header describes 66 bytes, the file has 65", 3},
		{`{"a":{` + one + `}}`, "describes 66 bytes, but the file has 67", 5},
		{`[1]`, "not a JSON object", 0},
		{`{"a":`, "tensor \"a\"", 0},
		{`{"a":{` + one + `}`, "not valid JSON", 4},
		{`{"a":{` + one + `}} x`, "something after", 4},
		{`{"a":{` + one + `},"a":{` + one + `}}`, `"a" occurs twice`, 4},
		{`{"a":{"dtype":"F32","shape":[1]}}`, "want dtype, shape and two data_offsets", 4},
		{`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}}`, "want dtype, shape and two data_offsets", 4},
		{`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, "negative axis", 4},
		{`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, "takes 8 bytes, data_offsets [0, 4] give 4", 4},
		{`{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`, "more elements", 0},
		{`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, "bad data_offsets [4, 0]", 4},
		{`{"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}`, "bad data_offsets [-4, 0]", 4},
		{`{"a":{"dtype":"F3","shape":[1],"data_offsets":[0,4]}}`, `unknown type "F3"`, 4},
		{`{"a":{` + one + `},"b":{` + one + `}}`, "tensor b starts at offset 0, but a ends at 4", 4},
		{`{"a":{` + one + `},"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}}`, "b starts at offset 8", 12},
		{`{"__metadata__":{"a":1}}`, "__metadata__ must map strings to strings", 0},
	} {
		data := safetensorsBytes(c.header, make([]byte, c.values))
		_, err := parseSafetensors("some/file.safetensors", bytes.NewReader(data), int64(len(data)))
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.want, c.header)
		require.ErrorContains(t, err, "some/file.safetensors: ", c.header)
	}
}

func TestGitLFSPointerIsNamedAsSuch(t *testing.T) {
	pointer := "version https://example.org/spec/v1\noid sha256:0\n"
	path := writeTestFile(t, t.TempDir(), "model.safetensors", pointer)
	_, err := OpenSafetensors(path)
	require.ErrorContains(t, err, "git lfs pull")
}

func TestSafetensorsTruncatedAnywhereIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	require.NoError(t, WriteSafetensors(path, []Tensor{
		{Name: "a", Shape: []int{3, 2}, Data: make([]float32, 6)}, {Name: "b", Shape: []int{2}, Data: make([]float32, 2)},
	}, BF16, map[string]string{"format": "pt"}))
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	_, err = parseSafetensors(path, bytes.NewReader(whole), int64(len(whole)))
	require.NoError(t, err)
	for n := range whole {
		_, err := parseSafetensors(path, bytes.NewReader(whole[:n]), int64(n))
		require.ErrorContains(t, err, path, "cut to %d of %d bytes", n, len(whole))
		require.ErrorContains(t, err, fmt.Sprintf("has %d", n))
	}
}

func TestSafetensorsHugeLengthsAllocateLittle(t *testing.T) {
	for _, length := range []uint64{maxHeaderBytes, maxHeaderBytes + 1, math.MaxInt64, math.MaxUint64} {
		data := append(binary.LittleEndian.AppendUint64(nil, length), "{}"...)
		allocated := allocatedBytes(func() {
			_, err := parseSafetensors("x", bytes.NewReader(data), int64(len(data)))
			require.Error(t, err)
		})
		assert.Less(t, allocated, uint64(1<<20))
	}
}

func allocatedBytes(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestWriteSafetensorsRefusesWhatItCannotWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	read := func() ([]float32, error) { return nil, errors.New("device is gone") }
	for want, tensors := range map[string][]Tensor{
		"occurs twice":                     {{Name: "a", Shape: []int{0}}, {Name: "a", Shape: []int{0}}},
		"is reserved":                      {{Name: "__metadata__", Shape: []int{0}}},
		"negative axis":                    {{Name: "a", Shape: []int{-1}}},
		"got 2 values for shape [3]":       {{Name: "a", Shape: []int{3}, Data: []float32{1, 2}}},
		"tensor a: device is gone":         {{Name: "a", Shape: []int{3}, Read: read}},
		"tensor a: the value 1e+06 is too": {{Name: "a", Shape: []int{1}, Data: []float32{1e6}}},
	} {
		err := WriteSafetensors(path, tensors, F16, nil)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, path)
		assert.NoFileExists(t, path)
		assert.NoFileExists(t, path+".tmp")
	}
	require.ErrorContains(t, WriteSafetensors(path, nil, "I8", nil), `cannot write values as "I8"`)
	missing := filepath.Join(t.TempDir(), "no", "x.safetensors")
	err := WriteSafetensors(missing, nil, F32, nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, missing)
}

func TestFullDiskIsAnErrorAndLeavesTheOldFile(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("skipped: there is no /dev/full here")
	}
	path := filepath.Join(t.TempDir(), "x.safetensors")
	old := []Tensor{{Name: "a", Shape: []int{1}, Data: []float32{1}}}
	require.NoError(t, WriteSafetensors(path, old, F32, nil))
	// Every write to the temporary file fails as on a full disk.
	require.NoError(t, os.Symlink("/dev/full", path+".tmp"))
	err := WriteSafetensors(path, []Tensor{{Name: "a", Shape: []int{1 << 20}, Data: make([]float32, 1<<20)}}, F32, nil)
	require.ErrorContains(t, err, "no space left on device")
	require.ErrorContains(t, err, path)
	got, _, err := ReadSafetensors(path)
	require.NoError(t, err)
	assert.Equal(t, old, got)
	assert.NoFileExists(t, path+".tmp")
}
