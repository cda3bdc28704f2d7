//go:build cgo

package grpo

import (
	"errors"
	"slices"
	"sync"

	"github.com/gomlx/gomlx/backends"
	"github.com/gomlx/gomlx/backends/xla"
)

func init() {
	openXLA = sync.OnceValues(func() (backends.Backend, error) {
		xla.EnableAutoInstall(false) // a test downloads nothing
		if !slices.Contains(xla.GetAvailablePlugins(), "cpu") {
			return nil, errors.New("the XLA CPU plugin is not installed; run go run ./scripts/setup_xla")
		}
		return xla.New("cpu")
	})
}
