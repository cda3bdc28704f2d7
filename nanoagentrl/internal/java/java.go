// Package java finds the Java that foreign search engines run on.
package java

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// Find returns the folder of a Java development kit whose major version is from least to most, the newest of those in
// $JAVA_HOME, on the PATH and in /usr/lib/jvm.
func Find(least, most int) (string, error) {
	best, home := 0, ""
	for _, folder := range folders() {
		if version := versionOf(folder); version >= least && version <= most && version > best {
			best, home = version, folder
		}
	}
	if home == "" {
		return "", fmt.Errorf("there is no Java development kit of version %d to %d; point JAVA_HOME at one", least, most)
	}
	return home, nil
}

// Run returns the path of a program of a JDK.
func Run(home, program string) string {
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	return filepath.Join(home, "bin", program)
}

func folders() []string {
	var found []string
	if home := os.Getenv("JAVA_HOME"); home != "" {
		found = append(found, home)
	}
	if path, err := exec.LookPath("java"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			found = append(found, filepath.Dir(filepath.Dir(path)))
		}
	}
	installed, _ := filepath.Glob("/usr/lib/jvm/*")
	return slices.Concat(found, installed)
}

// versionOf returns the major version of the JDK in a folder, 0 if there is none.
func versionOf(home string) int {
	if _, err := os.Stat(Run(home, "javac")); err != nil {
		return 0
	}
	release, err := os.Open(filepath.Join(home, "release"))
	if err != nil {
		return 0
	}
	defer release.Close()
	for lines := bufio.NewScanner(release); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), "JAVA_VERSION="); found {
			first, _, _ := strings.Cut(strings.Trim(value, `"`), ".")
			version, _ := strconv.Atoi(first)
			return version
		}
	}
	return 0
}
