//go:build !cgo

package device

import "errors"

// HasXLA says whether XLA support is built in.
const HasXLA = false

var errNoCgo = errors.New("this program was built without cgo, so XLA is not in it; " +
	"install a C compiler and build with CGO_ENABLED=1")

func openXLA(Kind) (*Device, error) { return nil, errNoCgo }

// PluginPath returns the file of the CPU plugin that would be used, or an error that says how to get one.
func PluginPath() (string, error) { return "", errNoCgo }

func hasNVIDIA() bool { return false }
