package nn

import (
	"syscall"
	"testing"

	"github.com/gomlx/gomlx/pkg/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
)

// BenchmarkBlock times the graphs of one block of SmolLM2-135M on 4 rows of 512 tokens.
func BenchmarkBlock(b *testing.B) {
	for _, dtype := range benchTypes {
		program, params := benchModel(b, dtype)
		batch := benchBatch(b, 4, 512)
		in, err := batch.upload(program.dev, &program.cfg)
		require.NoError(b, err)
		x, err := program.embed.Call(params.embedding(), in.ids)
		require.NoError(b, err)
		grads := NewGradients(&program.cfg)
		args := append(append([]*tensors.Tensor{}, params.layer(0)...), x[0], in.cos, in.sin, in.valid)
		kept, err := program.blockKeep.Call(args...)
		require.NoError(b, err)
		for name, fn := range map[string]func() ([]*tensors.Tensor, error){
			"forward, kept": func() ([]*tensors.Tensor, error) { return program.blockKeep.Call(args...) },
			"forward":       func() ([]*tensors.Tensor, error) { return program.block.Call(args...) },
			"backward": func() ([]*tensors.Tensor, error) {
				dx, err := program.blockBackward(params, 0, in, x[0], kept[1:], x[0], grads)
				grads.Free()
				return []*tensors.Tensor{dx}, err
			},
		} {
			b.Run(dtype.String()+"/"+name, func(b *testing.B) {
				out, err := fn()
				require.NoError(b, err)
				device.Free(out...)
				var before, after syscall.Rusage
				syscall.Getrusage(0, &before)
				for b.Loop() {
					out, err := fn()
					require.NoError(b, err)
					device.Free(out...)
				}
				syscall.Getrusage(0, &after)
				b.ReportMetric(float64(after.Utime.Nano()-before.Utime.Nano())/1e6/float64(b.N), "user-ms/op")
				b.ReportMetric(float64(after.Stime.Nano()-before.Stime.Nano())/1e6/float64(b.N), "sys-ms/op")
			})
		}
	}
}
