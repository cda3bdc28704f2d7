package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Part is one thing that notebooks need.
type Part struct {
	// Name and Where say what it is and where it belongs.
	Name, Where string
	// Err says why it is not there, or nil.
	Err error

	install func(ctx context.Context, run runner) error
}

// Parts returns everything that notebooks need, in the order of installation, after a look at each.
func (s *Setup) Parts(ctx context.Context) []Part {
	return []Part{
		{"kernel program gonb " + toolVersion(gonb) + ", goimports " + toolVersion(goimports), s.bin(""),
			s.checkTools(ctx), s.installTools},
		{"Jupyter: " + strings.ReplaceAll(strings.Join(s.packages(), ", "), "==", " "), s.venv(""), s.checkPython(ctx),
			s.installPython},
		{`description of the kernel "` + displayName + `"`, s.spec(), s.checkSpec(), s.installSpec},
	}
}

func (s *Setup) checkTools(ctx context.Context) error {
	version, err := output(ctx, "", s.bin("gonb"), "-V")
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("there is no gonb")
	case err != nil:
		return err
	case version != toolVersion(gonb):
		return fmt.Errorf("gonb is version %s", version)
	}
	about, err := output(ctx, "", "go", "version", "-m", s.bin("goimports"))
	if err != nil {
		return errors.New("there is no goimports")
	}
	if found := regexp.MustCompile(`\smod\s+` + goimports + `\s+(\S+)`).FindStringSubmatch(about); found == nil ||
		found[1] != toolVersion(goimports) {
		return errors.New("goimports has another version")
	}
	return nil
}

// versions prints the versions of the packages that it is given, one a line.
const versions = "import sys, importlib.metadata as m\nfor p in sys.argv[1:]:\n  print(p + '==' + m.version(p))"

func (s *Setup) checkPython(ctx context.Context) error {
	names := []string{"-c", versions}
	for _, p := range s.packages() {
		name, _, _ := strings.Cut(p, "==")
		names = append(names, name)
	}
	found, err := output(ctx, "", s.venv("python"), names...)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errors.New("there is no Python environment")
	case err != nil:
		return errors.New("packages are missing")
	case found != strings.Join(s.packages(), "\n"):
		return fmt.Errorf("it has %s", strings.Join(strings.Fields(found), ", "))
	}
	return nil
}

// spec is a kernel's description; see the Jupyter documentation on kernel specs.
type spec struct {
	Argv          []string          `json:"argv"`
	DisplayName   string            `json:"display_name"`
	Language      string            `json:"language"`
	InterruptMode string            `json:"interrupt_mode"`
	Env           map[string]string `json:"env"`
}

func (s *Setup) checkSpec() error {
	text, err := os.ReadFile(s.spec())
	if err != nil {
		return errors.New("it is not there")
	}
	var found spec
	if err := json.Unmarshal(text, &found); err != nil {
		return fmt.Errorf("it is damaged: %w", err)
	}
	if len(found.Argv) == 0 || found.Argv[0] != s.bin("gonb") {
		return errors.New("it belongs to another gonb")
	}
	return nil
}
