package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Flags are the options of every command that takes a config: --config, --run_dir, --data_dir and --set.
type Flags struct {
	path, runDir, dataDir string
	overrides             []string
	set                   *pflag.FlagSet
}

// AddFlags adds the options to a flag set, whose names may from then on be written with - or _.
func AddFlags(set *pflag.FlagSet) *Flags {
	f := &Flags{set: set}
	set.SetNormalizeFunc(NormalizeFlag)
	set.StringVar(&f.path, "config", "", "YAML file with the settings of the run")
	set.StringVar(&f.runDir, "run_dir", "", "folder of the run's files, where its curves are drawn too (the file's run_dir and figure if not given)")
	set.StringVar(&f.dataDir, "data_dir", "", "folder of data sets that can be named (the file's data_dir if not given)")
	set.StringArrayVar(&f.overrides, "set", nil, "override one setting, key=value; may be given several times")
	return f
}

// Open reads the config that the user asked for. Only options that stand on the command line change what the file
// says. The changes are returned as "key: old -> new".
func (f *Flags) Open() (c *Config, changes []string, err error) {
	if f.path == "" {
		return nil, nil, errors.New("no config: give --config FILE, for example --config configs/quickstart.yaml")
	}
	overrides := slices.Clip(f.overrides)
	if f.set.Changed("run_dir") {
		overrides = append(overrides, "run_dir="+f.runDir)
		if !slices.ContainsFunc(overrides, func(o string) bool { return strings.HasPrefix(o, "figure=") }) {
			overrides = append(overrides, "figure=") // The file's figure is that of the run in the file's own folder.
		}
	}
	if f.set.Changed("data_dir") {
		overrides = append(overrides, "data_dir="+f.dataDir)
	}
	return Open(f.path, overrides)
}

// NormalizeFlag makes - and _ the same in flag names; use it with pflag's SetNormalizeFunc.
func NormalizeFlag(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(strings.ReplaceAll(name, "-", "_"))
}
