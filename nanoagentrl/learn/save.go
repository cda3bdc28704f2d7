package learn

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime/debug"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/nn"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

// The file of a checkpoint that holds AdamW's moments, beside the model in Hugging Face layout. Its tensors are named
// after the parameters with "m." or "v." in front.
const optimizerName = "optimizer.safetensors"

// SaveState writes everything that the next step depends on into a checkpoint's folder: the model as a Hugging Face
// folder, and the optimiser's moments.
func SaveState(dir string, p *policy.Policy, o *AdamW) error {
	defer debug.FreeOSMemory() // Writing leaves as much garbage as there are weights and moments.
	if err := p.Save(dir); err != nil {
		return err
	}
	var list []weights.Tensor
	for i, param := range p.Params.Config().Params() {
		m, v := o.Moments(i)
		if m == nil {
			continue
		}
		list = append(list,
			weights.Tensor{Name: "m." + param.Name, Shape: param.Shape, Read: func() ([]float32, error) {
				return device.Values[float32](m)
			}},
			weights.Tensor{Name: "v." + param.Name, Shape: param.Shape, Read: func() ([]float32, error) {
				return device.Values[float32](v)
			}})
	}
	return weights.WriteSafetensors(filepath.Join(dir, optimizerName), list, weights.F32, nil)
}

// LoadState puts the model and the moments of a checkpoint into p and o; step is the number of updates AdamW has made.
func LoadState(ctx context.Context, dir string, p *policy.Policy, o *AdamW, step int) error {
	loaded, err := p.WithWeights(ctx, dir, policy.Options{})
	if err != nil {
		return err
	}
	p.Params.Free()
	p.Params = loaded.Params
	file, err := weights.OpenSafetensors(filepath.Join(dir, optimizerName))
	if err != nil {
		return err
	}
	defer file.Close()
	o.Restore(step)
	for i, param := range p.Params.Config().Params() {
		if _, ok := file.Info("m." + param.Name); !ok {
			continue
		}
		if err := loadMoments(file, o, i, param); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(dir, optimizerName), err)
		}
	}
	return nil
}

func loadMoments(file *weights.Safetensors, o *AdamW, i int, param nn.Param) error {
	size := 1
	for _, d := range param.Shape {
		size *= d
	}
	m, _, err := file.Tensor("m." + param.Name)
	if err != nil {
		return err
	}
	v, _, err := file.Tensor("v." + param.Name)
	if err != nil {
		return err
	}
	if len(m) != size || len(v) != size {
		return fmt.Errorf("the moments of %s have %d and %d values, want %d", param.Name, len(m), len(v), size)
	}
	return o.SetMoments(i, m, v, param.Shape)
}
