package weights

import (
	"bytes"
	"testing"
)

// FuzzGGUF looks for headers that make the reader panic; run it with go test -fuzz FuzzGGUF. The seeds run as tests.
func FuzzGGUF(f *testing.F) {
	for _, modelType := range []string{"llama", "qwen2"} {
		cfg := toyConfig(modelType)
		b := ggufToy(cfg, toyWeights(cfg))
		whole := b.build()
		f.Add(whole)
		f.Add(whole[:len(whole)/2])
		b.set("llama.attention.head_count_kv", []int32{1, 1})
		b.set("llama.attention.head_count", uint32(3))
		b.set("general.alignment", uint32(64))
		b.version = 2
		f.Add(b.build())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = exerciseGGUF(data) // any error is right, a panic is not
	})
}

// FuzzSafetensors does the same for safetensors files, and checks that what is accepted can be read.
func FuzzSafetensors(f *testing.F) {
	f.Add(safetensorsBytes(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, make([]byte, 4)))
	f.Add(safetensorsBytes(`{"__metadata__":{"format":"pt"},
		"a":{"dtype":"BF16","shape":[2,0],"data_offsets":[0,0]}}  `, nil))
	f.Add(safetensorsBytes(`{"a":{"dtype":"F16","shape":[1,2],"data_offsets":[4,8]},
		"b":{"dtype":"I32","shape":[],"data_offsets":[0,4]}}`, make([]byte, 8)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseSafetensors("fuzz", bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		for _, name := range s.Names() {
			info, ok := s.Info(name)
			if !ok {
				t.Fatalf("no info for %q", name)
			}
			if safetensorsTypes[info.Type].decode == nil {
				continue
			}
			if _, _, err := s.Tensor(name); err != nil {
				t.Fatal(err)
			}
		}
	})
}
