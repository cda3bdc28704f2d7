package weights

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/gomlx/go-huggingface/hub"
)

// HubOptions says how Resolve gets a model that is not there yet. The zero value follows the environment variables of
// Python's huggingface_hub.
type HubOptions struct {
	// CacheDir is where models are kept, in the layout that huggingface_hub shares; "" means $HF_HUB_CACHE,
	// $HF_HOME/hub, or ~/.cache/huggingface/hub.
	CacheDir string
	// Offline forbids any network access; $HF_HUB_OFFLINE and $TRANSFORMERS_OFFLINE do so too.
	Offline bool
	// Token is sent to the hub; "" means $HF_TOKEN.
	Token string
	// Progress is called while a file is fetched, from one goroutine at a time, with bytes. total is 0 if the server does
	// not say it; done equals total in the last call for a file and in no other. Nil shows nothing; TerminalProgress
	// makes a bar.
	Progress func(file string, done, total int64)
	// Warn is told, as one sentence, when a cached copy is used because the hub could not be reached. Nil drops it.
	Warn func(message string)
}

// hubRef is a model named as on the hub.
type hubRef struct {
	id       string // org/name
	file     string // a .gguf or .safetensors file in it, or ""
	revision string
}

func (r hubRef) String() string {
	s := r.id
	if r.file != "" {
		s += "/" + r.file
	}
	if r.revision != "main" {
		s += "@" + r.revision
	}
	return s
}

var (
	hubPart    = `[A-Za-z0-9_][A-Za-z0-9_.-]*`
	hubPattern = regexp.MustCompile(`^(` + hubPart + `/` + hubPart + `)((?:/` + hubPart + `)*)(?:@(` + hubPart +
		`(?:/` + hubPart + `)*))?$`)
	commitHash = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

// parseHubRef reads "org/name", "org/name/file.gguf", either with "@revision" at its end.
func parseHubRef(ref string) (hubRef, bool) {
	m := hubPattern.FindStringSubmatch(ref)
	if m == nil || strings.Contains(ref, "..") {
		return hubRef{}, false
	}
	r := hubRef{id: m[1], file: strings.TrimPrefix(m[2], "/"), revision: m[3]}
	if r.revision == "" {
		r.revision = "main"
	}
	if r.file != "" && !isModelFile(r.file) || r.file == "" && isModelFile(r.id) {
		return hubRef{}, false
	}
	return r, true
}

func isModelFile(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".gguf" || ext == ".safetensors"
}

// Resolve turns the name of a model into the path that Open takes. A path that exists ("~/" is the home folder) is
// returned as it is. Else ref is a name on the Hugging Face hub, "org/name", "org/name@revision" or
// "org/name/file.gguf", and the model is fetched into the cache unless it is there already: of a repository only
// config.json, generation_config.json, the tokenizer's files and the safetensors. Every file's size is checked; one
// that comes in short is fetched again, up to three times.
//
// When ctx ends, Resolve returns at once; a transfer that is under way goes on in the background until it ends or the
// program does, and what it has written is not taken for a complete file. If the hub cannot be reached, a complete
// copy in the cache is used.
func Resolve(ctx context.Context, ref string, opts HubOptions) (path string, err error) {
	if ref == "" {
		return "", errors.New("no model is named: want a folder, a file, or a hub name such as Qwen/Qwen2.5-0.5B-Instruct")
	}
	local := expandHome(ref)
	if _, err := os.Stat(local); err == nil {
		return local, nil
	}
	r, ok := parseHubRef(ref)
	if !ok {
		return "", fmt.Errorf("model %q: there is no such file or folder, and it is not a hub name either "+
			"(org/name, org/name@revision or org/name/file.gguf)", ref)
	}
	opts = opts.withEnvironment()
	cache := hubCache{dir: filepath.Join(opts.CacheDir, "models--"+strings.ReplaceAll(r.id, "/", "--"))}
	cached, cachedErr := cache.lookup(r)
	if cachedErr == nil && (opts.Offline || commitHash.MatchString(r.revision)) {
		return cached, nil
	}
	if opts.Offline {
		return "", fmt.Errorf("model %q: there is no such file or folder, it is not complete in the cache (%w), and "+
			"offline mode is on (option, HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE); run once with network access, or copy "+
			"the model here and name its folder", ref, cachedErr)
	}
	path, err = fetch(ctx, r, &cache, opts)
	if err == nil {
		return path, nil
	}
	if cachedErr == nil && unreachable(err) && ctx.Err() == nil {
		if opts.Warn != nil {
			opts.Warn(fmt.Sprintf("the hub cannot be reached (%v); using the copy of %s in the cache", err, r))
		}
		return cached, nil
	}
	return "", fmt.Errorf("model %q: there is no such file or folder, and it could not be fetched from the hub: %w%s",
		ref, err, hint(err))
}

func expandHome(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}

// withEnvironment fills what is unset from the environment.
func (o HubOptions) withEnvironment() HubOptions {
	for _, name := range []string{"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"} {
		switch strings.ToUpper(os.Getenv(name)) {
		case "1", "ON", "YES", "TRUE":
			o.Offline = true
		}
	}
	if o.Token == "" {
		o.Token = os.Getenv("HF_TOKEN")
	}
	if o.CacheDir == "" {
		o.CacheDir = os.Getenv("HF_HUB_CACHE")
	}
	if home := os.Getenv("HF_HOME"); o.CacheDir == "" && home != "" {
		o.CacheDir = filepath.Join(home, "hub")
	}
	if o.CacheDir == "" {
		o.CacheDir = hub.DefaultCacheDir()
	}
	o.CacheDir = expandHome(o.CacheDir)
	return o
}

// unreachable reports whether an error came from the network or a failing server, and not from an answer of the hub.
func unreachable(err error) bool {
	var network *url.Error
	return errors.As(err, &network) || statusOf(err) >= 500
}

var statusPattern = regexp.MustCompile(`(?:status code |following message: ")(\d{3})\b`)

// statusOf returns the HTTP status that go-huggingface wrote into an error, or 0.
func statusOf(err error) int {
	if m := statusPattern.FindStringSubmatch(err.Error()); m != nil {
		status, _ := strconv.Atoi(m[1])
		return status
	}
	return 0
}

// hint says what to do about an error of the hub.
func hint(err error) string {
	switch status := statusOf(err); {
	case status == 401 || status == 403:
		return "; the name is wrong, or the model is private or gated: accept its terms on its page and set HF_TOKEN"
	case status == 404:
		return "; check the name and the revision"
	case unreachable(err):
		return "; check the network connection, or copy the model here and name its folder"
	}
	return ""
}
