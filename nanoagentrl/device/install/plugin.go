package install

import (
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// Plugin is an installed XLA plugin.
type Plugin struct {
	// Path is the name under which it is loaded.
	Path string
	// Version names package and version, or says that the build is unknown.
	Version string
	// SHA256 is the checksum of the file, in hexadecimal.
	SHA256 string
	// Size is in bytes.
	Size int64
}

// String describes the plugin in one line: version, size, the head of the checksum and path.
func (p *Plugin) String() string {
	return fmt.Sprintf("%s, %d MB, SHA-256 %.12s..., %s", p.Version, p.Size/1e6, p.SHA256, p.Path)
}

// Inspect reads a plugin file, which may be a link, and computes its checksum: about a second for the 200 MB of the CPU
// plugin. It fails if the file is cut short or not made for this machine.
func Inspect(path string) (*Plugin, error) {
	real, err := checkPlugin(path)
	if err != nil {
		return nil, err
	}
	sum, size, err := hashFile(real)
	if err != nil {
		return nil, err
	}
	return &Plugin{Path: path, Version: versionOf(real, sum), SHA256: sum, Size: size}, nil
}

// Installed describes the CPU plugin in a folder. The error of a folder without one is fs.ErrNotExist.
func Installed(folder string) (*Plugin, error) {
	return Inspect(filepath.Join(folder, plainName))
}

// versionOf tells a plugin's version from its checksum, else from the file name that go-xla gives.
func versionOf(real, sum string) string {
	if sum == cpuWheel.memberSHA256 {
		return cpuWheel.label
	}
	name := filepath.Base(real)
	version, found := strings.CutPrefix(name, "pjrt_c_api_cpu_v")
	version, suffix := strings.CutSuffix(version, "_plugin"+filepath.Ext(name))
	if found && suffix {
		return "go-xla's plugin v" + version
	}
	return "an unknown build"
}

// checkPlugin resolves links and looks for damage that would crash the program that loads the file.
func checkPlugin(path string) (real string, err error) {
	real, err = filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(real); err != nil {
		return "", err
	} else if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a file", real)
	}
	if runtime.GOOS != "linux" {
		return real, nil
	}
	file, err := elf.Open(real) // Reads the table of sections at the end of the file.
	if err != nil {
		return "", fmt.Errorf("%s is damaged: %w", real, err)
	}
	defer file.Close()
	machine, known := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	if known && file.Machine != machine {
		return "", fmt.Errorf("%s is made for another kind of machine (%v)", real, file.Machine)
	}
	return real, nil
}

func hashFile(path string) (sum string, size int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer file.Close()
	hash := sha256.New()
	if size, err = io.Copy(hash, file); err != nil {
		return "", 0, fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), size, nil
}

// plainName and versionedName are the two names of the CPU plugin: the first is the one that is loaded, the second the
// one by which go-xla's installer (of the version in go.mod) sees that there is nothing to install.
var (
	plainName     = "pjrt_c_api_cpu_plugin" + libraryExt()
	versionedName = "pjrt_c_api_cpu_v0.83.3_plugin" + libraryExt()
)

func libraryExt() string {
	if runtime.GOOS == "windows" {
		return ".dll"
	}
	return ".so"
}

// existing returns which of the two names leads to a usable plugin, or "", and whether both do.
func existing(folder string) (name string, both bool) {
	_, plain := checkPlugin(filepath.Join(folder, plainName))
	_, versioned := checkPlugin(filepath.Join(folder, versionedName))
	switch {
	case plain == nil:
		return plainName, versioned == nil
	case versioned == nil:
		return versionedName, false
	}
	return "", false
}

// place moves a finished plugin into the folder under a name, and points both names of the CPU plugin to it. At each
// moment the names lead to a whole file, the old one or the new.
func place(folder, file, name string) error {
	if err := os.Rename(file, filepath.Join(folder, name)); err != nil {
		return err
	}
	if err := linkNames(folder, name); err != nil {
		return err
	}
	if name != cpuWheel.fileName() {
		if err := os.Remove(filepath.Join(folder, cpuWheel.fileName())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// linkNames makes both names lead to the file name in the folder.
func linkNames(folder, name string) error {
	for _, alias := range []string{versionedName, plainName} {
		if alias == name {
			continue
		}
		temporary := filepath.Join(folder, "."+alias+".new")
		if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := os.Symlink(name, temporary); err != nil {
			// Windows keeps symbolic links to administrators.
			if err := os.Link(filepath.Join(folder, name), temporary); err != nil {
				return err
			}
		}
		if err := os.Rename(temporary, filepath.Join(folder, alias)); err != nil {
			return err
		}
	}
	return nil
}
