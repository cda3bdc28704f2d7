package install

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// wheel is a Python package that holds a plugin, pinned by its checksums.
type wheel struct {
	name, version, sha256 string
	// member is the plugin's path in the wheel.
	member, memberSHA256 string
	// label is the version as shown to users.
	label string
}

// cpuWheel holds XLA's own CPU plugin, built for glibc 2.27 or newer (Apache-2.0).
var cpuWheel = wheel{
	name:         "lammps-jax-pjrt-cpu",
	version:      "0.11.2",
	sha256:       "1319390d948b39f69f7dade496b7c385149d9ca6097a6b62114da113216d9ad1",
	member:       "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so",
	memberSHA256: "ad1309ac822b1b24d51b7f9947c7c9fa9ef5d67f390584cbc3d1fa2428fed9c2",
	label:        "lammps-jax-pjrt-cpu 0.11.2 (PJRT 0.115)",
}

// requirement names the wheel as pip does.
func (w *wheel) requirement() string { return w.name + "==" + w.version }

// fileName is the name of the plugin's file in the plugin folder. It has no version, so that a newer one replaces it,
// and none of the forms that are taken for a plugin, so that the file is loaded once.
func (w *wheel) fileName() string { return w.name + ".so" }

// extract checks the wheel in file and writes its plugin into the folder work, where it returns the path.
func (w *wheel) extract(ctx context.Context, file, work string) (string, error) {
	sum, _, err := hashFile(file)
	if err != nil {
		return "", fmt.Errorf("wheel: %w", err)
	}
	if sum != w.sha256 {
		return "", fmt.Errorf("wrong checksum: %s has SHA-256 %s, but %s has %s; the file is damaged or another one, "+
			"and nothing of it was installed", file, sum, w.requirement(), w.sha256)
	}
	archive, err := zip.OpenReader(file)
	if err != nil {
		return "", fmt.Errorf("wheel %s: %w", file, err)
	}
	defer archive.Close()
	for _, entry := range archive.File {
		if entry.Name == w.member {
			return w.unpack(ctx, entry, filepath.Join(work, w.fileName()))
		}
	}
	return "", fmt.Errorf("wheel %s: it has no %s", file, w.member)
}

func (w *wheel) unpack(ctx context.Context, entry *zip.File, path string) (string, error) {
	in, err := entry.Open()
	if err != nil {
		return "", fmt.Errorf("wheel: %s: %w", entry.Name, err)
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return "", err
	}
	defer out.Close() // Again, after the Close below, it does nothing.
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(out, hash), &interruptible{ctx, in}); err != nil {
		return "", fmt.Errorf("unpacking the plugin (%d MB are needed): %w", entry.UncompressedSize64/1e6, err)
	}
	if err := out.Sync(); err != nil {
		return "", fmt.Errorf("unpacking the plugin (%d MB are needed): %w", entry.UncompressedSize64/1e6, err)
	}
	if err := out.Close(); err != nil {
		return "", fmt.Errorf("unpacking the plugin: %w", err)
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != w.memberSHA256 {
		return "", fmt.Errorf("wrong checksum: %s in the wheel has SHA-256 %s, want %s; nothing was installed",
			w.member, sum, w.memberSHA256)
	}
	return path, nil
}

// interruptible is a reader that fails once its context has ended.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i *interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(p)
}
