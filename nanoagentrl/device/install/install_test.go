package install

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gofrs/flock"
	"github.com/gomlx/go-xla/pkg/installer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// library returns the smallest ELF file for this machine, with text at its end to tell one from another.
func library(text string) []byte {
	machine := elf.EM_X86_64
	if runtime.GOARCH == "arm64" {
		machine = elf.EM_AARCH64
	}
	header := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(machine), Version: 1, Ehsize: 64}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	var out bytes.Buffer
	_ = binary.Write(&out, binary.LittleEndian, header)
	out.WriteString(text)
	return out.Bytes()
}

func sum(data []byte) string {
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:])
}

// fakeWheel writes a wheel with the given plugin and returns its path and its pin.
func fakeWheel(t *testing.T, plugin []byte) (string, *wheel) {
	t.Helper()
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	files := map[string][]byte{"fake/plugin.so": plugin, "fake-1.0.dist-info/METADATA": []byte("Name: fake\n")}
	for name, data := range files {
		entry, err := w.Create(name)
		require.NoError(t, err)
		_, err = entry.Write(data)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	path := filepath.Join(t.TempDir(), "fake-1.0-py3-none-any.whl")
	require.NoError(t, os.WriteFile(path, archive.Bytes(), 0o644))
	return path, &wheel{name: "fake", version: "1.0", sha256: sum(archive.Bytes()),
		member: "fake/plugin.so", memberSHA256: sum(plugin), label: "fake 1.0"}
}

// visible lists a folder without the lock file.
func visible(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	names := []string{}
	for _, entry := range entries {
		if entry.Name() != ".setup_xla.lock" {
			names = append(names, entry.Name())
		}
	}
	return names
}

func read(t *testing.T, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	require.NoError(t, err)
	return string(data)
}

func options(folder string, pin *wheel) Options {
	return Options{
		Folder: folder, pin: pin, platform: "linux/amd64",
		viaGoXLA: func(string) error { return errors.New("no network in tests") },
		viaPip:   func(context.Context, string) error { return errors.New("no pip in tests") },
	}
}

func TestWheelGivesBothNames(t *testing.T) {
	path, pin := fakeWheel(t, library("new"))
	folder := filepath.Join(t.TempDir(), "not", "there", "yet")
	o := options(folder, pin)
	o.Wheel = path
	plugin, already, err := CPU(context.Background(), o)
	require.NoError(t, err)
	assert.False(t, already)
	assert.Equal(t, []string{"fake.so", plainName, versionedName}, visible(t, folder))
	assert.Equal(t, string(library("new")), read(t, folder, plainName))
	assert.Equal(t, string(library("new")), read(t, folder, versionedName))
	assert.Equal(t, sum(library("new")), plugin.SHA256)
	assert.Equal(t, filepath.Join(folder, plainName), plugin.Path)
}

func TestGoXLAFindsNothingToInstallUnderTheVersionedName(t *testing.T) {
	transport := http.DefaultTransport
	t.Cleanup(func() { http.DefaultTransport = transport })
	http.DefaultTransport = noNetwork{}
	folder := t.TempDir()
	err := installer.CPUAutoInstall(folder, false, installer.Quiet)
	require.ErrorContains(t, err, "no network in tests", "the check below would prove nothing")
	require.NoError(t, os.WriteFile(filepath.Join(folder, versionedName), library(""), 0o755))
	assert.NoError(t, installer.CPUAutoInstall(folder, false, installer.Quiet),
		"go.mod has a go-xla that looks for another version: change versionedName")
}

type noNetwork struct{}

func (noNetwork) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("no network in tests")
}

func TestSecondInstallDoesNothingUnlessForced(t *testing.T) {
	path, pin := fakeWheel(t, library("one"))
	folder := t.TempDir()
	o := options(folder, pin)
	o.Wheel = path
	_, _, err := CPU(context.Background(), o)
	require.NoError(t, err)
	before, err := os.Stat(filepath.Join(folder, plainName))
	require.NoError(t, err)

	o.Wheel = filepath.Join(folder, "no such file")
	plugin, already, err := CPU(context.Background(), o)
	require.NoError(t, err)
	assert.True(t, already)
	assert.Equal(t, sum(library("one")), plugin.SHA256)
	after, err := os.Stat(filepath.Join(folder, plainName))
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after))

	o.Wheel, o.pin = fakeWheel(t, library("two"))
	o.Force = true
	plugin, already, err = CPU(context.Background(), o)
	require.NoError(t, err)
	assert.False(t, already)
	assert.Equal(t, sum(library("two")), plugin.SHA256)
	assert.Equal(t, string(library("two")), read(t, folder, versionedName))
}

// Older instructions made the plain name a file and the versioned one a link to it.
func TestForceReplacesAFileUnderThePlainName(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, plainName), library("old"), 0o644))
	require.NoError(t, os.Symlink(plainName, filepath.Join(folder, versionedName)))
	o := options(folder, nil)
	o.Force = true
	o.Wheel, o.pin = fakeWheel(t, library("new"))
	_, _, err := CPU(context.Background(), o)
	require.NoError(t, err)
	assert.Equal(t, string(library("new")), read(t, folder, plainName))
	assert.Equal(t, string(library("new")), read(t, folder, versionedName))
}

func TestMissingNameIsAddedWithoutFetching(t *testing.T) {
	for _, name := range []string{plainName, versionedName} {
		folder := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), library("mine"), 0o644))
		plugin, already, err := CPU(context.Background(), options(folder, &cpuWheel))
		require.NoError(t, err)
		assert.True(t, already)
		assert.Equal(t, "mine", read(t, folder, plainName)[64:])
		assert.Equal(t, "mine", read(t, folder, versionedName)[64:])
		assert.Equal(t, sum(library("mine")), plugin.SHA256)
	}
}

func TestDamagedPluginIsReplaced(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("skipped: damage is looked for in ELF files only")
	}
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, plainName), library("")[:40], 0o644))
	require.NoError(t, os.Symlink(plainName, filepath.Join(folder, versionedName)))
	o := options(folder, nil)
	o.Wheel, o.pin = fakeWheel(t, library("new"))
	_, already, err := CPU(context.Background(), o)
	require.NoError(t, err)
	assert.False(t, already)
	assert.Equal(t, string(library("new")), read(t, folder, plainName))
}

func TestWrongChecksumLeavesTheOldPlugin(t *testing.T) {
	path, pin := fakeWheel(t, library("new"))
	other := *pin
	other.sha256 = sum([]byte("another wheel"))
	inside := *pin
	inside.memberSHA256 = sum([]byte("another plugin"))
	for name, wrong := range map[string]*wheel{"wheel": &other, "plugin in the wheel": &inside} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(folder, plainName), library("old"), 0o644))
			o := options(folder, wrong)
			o.Wheel, o.Force = path, true
			_, _, err := CPU(context.Background(), o)
			require.ErrorContains(t, err, "wrong checksum")
			assert.NotContains(t, err.Error(), "\n")
			assert.Equal(t, []string{plainName}, visible(t, folder))
			assert.Equal(t, string(library("old")), read(t, folder, plainName))
		})
	}
}

func TestWheelThatIsNoneIsAnError(t *testing.T) {
	text := []byte("<html>not found</html>")
	path := filepath.Join(t.TempDir(), "x.whl")
	require.NoError(t, os.WriteFile(path, text, 0o644))
	folder := t.TempDir()
	o := options(folder, &wheel{name: "fake", sha256: sum(text)})
	o.Wheel = path
	_, _, err := CPU(context.Background(), o)
	assert.ErrorContains(t, err, path)
	assert.ErrorContains(t, err, "not a valid zip file")
	o.Wheel = path + ".gone"
	_, _, err = CPU(context.Background(), o)
	assert.ErrorIs(t, err, os.ErrNotExist)
	assert.Empty(t, visible(t, folder))
}

func TestUnwritableFolderIsAnError(t *testing.T) {
	blocked := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(blocked, nil, 0o644))
	o := options(filepath.Join(blocked, "go-xla"), nil)
	o.Wheel, o.pin = fakeWheel(t, library("new"))
	_, _, err := CPU(context.Background(), o)
	assert.ErrorContains(t, err, "cannot be written")
	assert.ErrorContains(t, err, "--folder DIR")
}

func TestAutoFallsBackToPip(t *testing.T) {
	path, pin := fakeWheel(t, library("from pip"))
	folder := t.TempDir()
	o := options(folder, pin)
	var log strings.Builder
	o.Log = &log
	o.viaPip = func(_ context.Context, folder string) error {
		require.NoError(t, os.MkdirAll(folder, 0o755))
		return os.WriteFile(filepath.Join(folder, "fake-1.0.whl"), []byte(read(t, path)), 0o644)
	}
	_, _, err := CPU(context.Background(), o)
	require.NoError(t, err)
	assert.Contains(t, log.String(), "no network in tests")
	assert.Equal(t, string(library("from pip")), read(t, folder, plainName))
	assert.Equal(t, []string{"fake.so", plainName, versionedName}, visible(t, folder))
}

func TestNoSourceWorksIsOneClearError(t *testing.T) {
	folder := t.TempDir()
	_, _, err := CPU(context.Background(), options(folder, &cpuWheel))
	require.ErrorContains(t, err, "no pip in tests")
	assert.ErrorContains(t, err, "--wheel FILE")
	assert.NotContains(t, err.Error(), "\n")
	assert.Empty(t, visible(t, folder))
}

func TestGoXLAsFileBecomesThePlugin(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, cpuWheel.fileName()), library("old"), 0o644))
	require.NoError(t, os.Symlink(cpuWheel.fileName(), filepath.Join(folder, plainName)))
	o := options(folder, nil)
	o.Force = true
	o.viaGoXLA = func(folder string) error {
		require.NoError(t, os.MkdirAll(folder, 0o755))
		return os.WriteFile(filepath.Join(folder, versionedName), library("go-xla"), 0o755)
	}
	plugin, _, err := CPU(context.Background(), o)
	require.NoError(t, err)
	assert.Equal(t, []string{plainName, versionedName}, visible(t, folder))
	assert.Equal(t, "go-xla's plugin v0.83.3", plugin.Version)
	assert.Equal(t, string(library("go-xla")), read(t, folder, plainName))
}

func TestPipIsForLinuxAMD64Only(t *testing.T) {
	folder := t.TempDir()
	for _, o := range []Options{{From: Pip}, {Wheel: "x.whl"}} {
		o.Folder, o.platform = folder, "plan9/mips"
		_, _, err := CPU(context.Background(), o)
		assert.ErrorContains(t, err, "linux/amd64 and this is plan9/mips")
	}
	_, _, err := CPU(context.Background(), Options{Folder: folder, From: "ftp"})
	assert.ErrorContains(t, err, `source "ftp" is unknown; choose auto, gomlx or pip`)
	assert.Empty(t, visible(t, folder))
}

func TestInterruptLeavesNothing(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, plainName), library("old"), 0o644))
	ctx, cancel := context.WithCancel(context.Background())
	o := options(folder, &cpuWheel)
	o.Force = true
	blocked := make(chan struct{})
	t.Cleanup(func() { close(blocked) })
	o.viaGoXLA = func(string) error { cancel(); <-blocked; return nil } // It knows no context.
	_, _, err := CPU(ctx, o)
	assert.EqualError(t, err, "interrupted; nothing was changed")

	ctx, cancel = context.WithCancel(context.Background())
	o.From = Pip
	o.viaPip = func(ctx context.Context, _ string) error { cancel(); return ctx.Err() }
	_, _, err = CPU(ctx, o)
	assert.EqualError(t, err, "interrupted; nothing was changed")

	ctx, cancel = context.WithCancel(context.Background())
	cancel()
	o.Wheel, o.pin = fakeWheel(t, library("new"))
	_, _, err = CPU(ctx, o)
	assert.EqualError(t, err, "interrupted; nothing was changed")
	assert.Equal(t, []string{plainName}, visible(t, folder))
	assert.Equal(t, string(library("old")), read(t, folder, plainName))
}

func TestLeftoversOfAKilledInstallAreRemoved(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(folder, ".setup_xla-123", "pip"), 0o755))
	require.NoError(t, os.Symlink("gone", filepath.Join(folder, "."+plainName+".new")))
	o := options(folder, nil)
	o.Wheel, o.pin = fakeWheel(t, library("new"))
	_, _, err := CPU(context.Background(), o)
	require.NoError(t, err)
	assert.Equal(t, []string{"fake.so", plainName, versionedName}, visible(t, folder))
}

func TestTwoInstallsAtOnceAreRefused(t *testing.T) {
	folder := t.TempDir()
	lock := flock.New(filepath.Join(folder, ".setup_xla.lock"))
	require.NoError(t, lock.Lock())
	defer lock.Unlock()
	_, _, err := CPU(context.Background(), options(folder, &cpuWheel))
	assert.ErrorContains(t, err, "another process is installing")
}

func TestInspectSaysWhatIsThere(t *testing.T) {
	folder := t.TempDir()
	_, err := Installed(folder)
	assert.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(filepath.Join(folder, plainName), library("?"), 0o644))
	plugin, err := Installed(folder)
	require.NoError(t, err)
	assert.Equal(t, "an unknown build", plugin.Version)
	assert.Equal(t, int64(65), plugin.Size)
	assert.Equal(t, cpuWheel.label, versionOf("x.so", cpuWheel.memberSHA256))
	if runtime.GOOS == "linux" {
		foreign := library("")
		binary.LittleEndian.PutUint16(foreign[18:], uint16(elf.EM_S390))
		require.NoError(t, os.WriteFile(filepath.Join(folder, plainName), foreign, 0o644))
		_, err = Installed(folder)
		assert.ErrorContains(t, err, "another kind of machine (EM_S390)")
	}
}

func TestPipReason(t *testing.T) {
	assert.Equal(t, "No matching distribution found for x==1",
		pipReason("WARNING: slow\nERROR: Could not find a version\nERROR: No matching distribution found for x==1\n"))
	assert.Contains(t, pipReason("/usr/bin/python3: No module named pip\n"), "has no pip")
	assert.Equal(t, "it left no message", pipReason(""))
}
