package live

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/config"
)

// Config opens a config file of the repository, with overrides of the form "key=value". Paths in a config are relative
// to the repository's top folder, so the program moves there from wherever in the repository it was started.
func Config(path string, overrides ...string) (*config.Config, error) {
	root, err := root()
	if err != nil {
		return nil, err
	}
	if err := os.Chdir(root); err != nil {
		return nil, err
	}
	cfg, _, err := config.Open(path, overrides)
	return cfg, err
}

// root is the nearest folder at or above the working directory, or else the notebook's, that holds this module.
func root() (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for _, start := range []string{here, os.Getenv("GONB_DIR")} {
		for dir := start; dir != ""; dir = filepath.Dir(dir) {
			if exists(filepath.Join(dir, "go.mod")) && exists(filepath.Join(dir, "nanoagentrl")) {
				return dir, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", fmt.Errorf("%s is not inside the repository; start Jupyter there, or change to it with os.Chdir", here)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, os.ErrNotExist)
}
