package learn

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"

	"github.com/gomlx/gomlx/pkg/core/tensors"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/policy"
	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/weights"
)

// optimizerName is the file of a checkpoint that holds AdamW's moments, beside the model in Hugging Face layout. Its
// tensors are named after the parameters with "m." or "v." in front.
const optimizerName = "optimizer.safetensors"

// SaveState writes everything that the next step depends on into a checkpoint's folder: the model as a Hugging Face
// folder, and the optimiser's moments.
func SaveState(dir string, p *policy.Policy, o *AdamW) error {
	defer debug.FreeOSMemory() // Writing leaves as much garbage as there are weights and moments.
	if err := p.Save(dir); err != nil {
		return err
	}
	return saveMoments(filepath.Join(dir, optimizerName), p.Params, o)
}

// saveMoments writes the moments of all tensors that were ever updated.
func saveMoments(path string, params Parameters, o *AdamW) error {
	var list []weights.Tensor
	for i, name := range params.Names() {
		if m, v := o.Moments(i); m != nil {
			list = append(list, stored("m."+name, m), stored("v."+name, v))
		}
	}
	return weights.WriteSafetensors(path, list, weights.F32, nil)
}

// stored is a tensor of a file whose values are read from the device when they are written.
func stored(name string, t *tensors.Tensor) weights.Tensor {
	return weights.Tensor{Name: name, Shape: t.Shape().Dimensions, Read: func() ([]float32, error) {
		return device.Values[float32](t)
	}}
}

// LoadState puts the model and the moments of a checkpoint into p and o; step is the number of updates AdamW has made.
func LoadState(ctx context.Context, dir string, p *policy.Policy, o *AdamW, step int) error {
	loaded, err := p.WithWeights(ctx, dir, policy.Options{})
	if err != nil {
		return err
	}
	p.Params.Free()
	p.Params = loaded.Params
	return loadMoments(filepath.Join(dir, optimizerName), p.Params, o, step)
}

// loadMoments restores the moments that saveMoments wrote, and the number of updates made.
func loadMoments(path string, params Parameters, o *AdamW, step int) error {
	file, err := weights.OpenSafetensors(path)
	if err != nil {
		return err
	}
	defer file.Close()
	o.Restore(step)
	for i, name := range params.Names() {
		if _, ok := file.Info("m." + name); !ok {
			continue
		}
		shape := params.Master(i).Shape().Dimensions
		m, err := loadTensor(file, "m."+name, shape)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		v, err := loadTensor(file, "v."+name, shape)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := o.SetMoments(i, m, v, shape); err != nil {
			return err
		}
	}
	return nil
}

// loadTensor reads a tensor, which must have the given shape.
func loadTensor(file *weights.Safetensors, name string, want []int) ([]float32, error) {
	values, shape, err := file.Tensor(name)
	if err != nil {
		return nil, err
	}
	if !slices.Equal(shape, want) {
		return nil, fmt.Errorf("%s has shape %v, want %v", name, shape, want)
	}
	return values, nil
}

// The files of a checkpoint that hold a critic and the moments of its AdamW, named as above.
const (
	criticName          = "critic.safetensors"
	criticOptimizerName = "critic_optimizer.safetensors"
)

// SaveState writes everything that the critic's next step depends on into a checkpoint's folder.
func (c *Critic) SaveState(dir string) error {
	defer debug.FreeOSMemory()
	var list []weights.Tensor
	for i, name := range c.net.Names() {
		list = append(list, stored(name, c.net.Master(i)))
	}
	if err := weights.WriteSafetensors(filepath.Join(dir, criticName), list, weights.F32, nil); err != nil {
		return err
	}
	return saveMoments(filepath.Join(dir, criticOptimizerName), c.net, c.optimizer)
}

// LoadState puts the critic of a checkpoint into c; step is the number of updates it has made.
func (c *Critic) LoadState(dir string, step int) error {
	path := filepath.Join(dir, criticName)
	file, err := weights.OpenSafetensors(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for i, name := range c.net.Names() {
		shape := c.net.Master(i).Shape().Dimensions
		values, err := loadTensor(file, name, shape)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		t, err := device.Upload(c.net.Program().Device(), values, shape...)
		if err != nil {
			return err
		}
		if err := c.net.Replace(i, t); err != nil {
			return err
		}
	}
	return loadMoments(filepath.Join(dir, criticOptimizerName), c.net, c.optimizer, step)
}
