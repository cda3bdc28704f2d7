//go:build !(linux && amd64)

package install

import "errors"

func goXLACUDA(string, string) error {
	return errors.New("the CUDA plugin is made for linux/amd64 only")
}
