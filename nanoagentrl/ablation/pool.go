package ablation

import (
	"sync"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/device"
)

// pool lends devices to runs, one run at a time each. A run that gets one which served another before finds most of its
// graphs compiled.
type pool struct {
	mu   sync.Mutex
	free map[string][]*device.Device // by the backend that was asked for
}

// take returns a free device or opens one. Opening is guarded too: it changes what belongs to the whole process.
func (p *pool) take(backend string) (*device.Device, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if list := p.free[backend]; len(list) > 0 {
		p.free[backend] = list[:len(list)-1]
		return list[len(list)-1], nil
	}
	return device.Open(backend)
}

// give takes a device back.
func (p *pool) give(backend string, d *device.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.free == nil {
		p.free = map[string][]*device.Device{}
	}
	p.free[backend] = append(p.free[backend], d)
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, list := range p.free {
		for _, d := range list {
			d.Close()
		}
	}
	p.free = nil
}
