package install

import "github.com/gomlx/go-xla/pkg/installer"

// goXLACUDA is go-xla's installer for the CUDA plugin.
func goXLACUDA(plugin, folder string) error {
	boundWaits()
	defer quietUnlessTerminal()()
	return installer.CudaInstall(plugin, "latest", folder, true, installer.Normal)
}
