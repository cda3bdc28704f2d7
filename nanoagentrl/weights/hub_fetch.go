package weights

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomlx/go-huggingface/hub"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/hubcache"
)

// fetchAttempts is how often a file is fetched before a wrong size is an error.
const fetchAttempts = 3

// fetcher gets the files of one repository through go-huggingface. That library (v0.3.1) reports a connection that
// breaks in the middle of a file as success, races on its counters when it fetches several files at once, takes no
// context, and may print; so it is asked for one file at a time, quietly, in a goroutine, and sizes are checked here.
type fetcher struct {
	ref    hubRef
	cache  *hubCache
	opts   HubOptions
	repo   *hub.Repo
	commit string
	files  map[string]bool // names in the repository
}

// fetch brings the files of a model into the cache and returns the path for Open.
func fetch(ctx context.Context, r hubRef, cache *hubCache, opts HubOptions) (string, error) {
	// go-huggingface removes its own note of the revision before it asks anew; keep it for the next run offline.
	if commit, err := cache.commit(r.revision); err == nil {
		if err := cache.remember(r.revision, commit); err != nil {
			return "", err
		}
	}
	f := &fetcher{ref: r, cache: cache, opts: opts, files: map[string]bool{}}
	f.repo = hub.New(r.id).WithRevision(r.revision).WithAuth(opts.Token).WithCacheDir(opts.CacheDir)
	f.repo.Verbosity = 0
	if err := f.list(ctx); err != nil {
		return "", err
	}
	path, err := f.model(ctx)
	if err != nil {
		return "", err
	}
	return path, cache.remember(r.revision, f.commit)
}

// list asks the hub for the commit and the names of the files.
func (f *fetcher) list(ctx context.Context) error {
	err := hubcache.Guarded(ctx, func() error {
		// Asking for any address makes the library ask the hub for the commit, once.
		if _, err := f.repo.FileURL("config.json"); err != nil {
			return err
		}
		for name, err := range f.repo.IterFileNames() {
			if err != nil {
				return err
			}
			f.files[name] = true
		}
		return nil
	})
	if err == nil {
		if f.commit = f.repo.Info().CommitHash; commitHash.MatchString(f.commit) {
			return nil
		}
		err = fmt.Errorf("the hub names no commit for %s", f.ref)
	}
	// What was saved of a failed answer must not be taken for one.
	if ctx.Err() == nil {
		_ = os.Remove(filepath.Join(f.cache.dir, "info", filepath.FromSlash(f.ref.revision)))
	}
	return err
}

// model fetches what the reference needs.
func (f *fetcher) model(ctx context.Context) (string, error) {
	dir := f.cache.snapshot(f.commit)
	if f.ref.file != "" && !f.files[f.ref.file] {
		return "", fmt.Errorf("%s holds no file %s%s", f.ref.id, f.ref.file, f.others())
	}
	if filepath.Ext(f.ref.file) == ".gguf" {
		return filepath.Join(dir, filepath.FromSlash(f.ref.file)), f.get(ctx, f.ref.file)
	}
	if !f.files["config.json"] {
		return "", fmt.Errorf("%s holds no config.json%s", f.ref.id, f.others())
	}
	wanted := slices.DeleteFunc(slices.Clone(hubFiles), func(name string) bool { return !f.files[name] })
	switch {
	case f.ref.file != "":
		wanted = append(wanted, f.ref.file)
	case f.files[singleFile]:
		wanted = append(wanted, singleFile)
	case f.files[indexFile]:
		if err := f.get(ctx, indexFile); err != nil {
			return "", err
		}
		shards, err := readIndex(dir)
		if err != nil {
			return "", err
		}
		wanted = append(wanted, slices.Sorted(maps.Keys(shards))...)
	default:
		return "", fmt.Errorf("%s holds neither %s nor %s%s", f.ref.id, singleFile, indexFile, f.others())
	}
	for _, name := range wanted {
		if err := f.get(ctx, name); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, filepath.FromSlash(f.ref.file)), nil
}

// others names the GGUF files of a repository, for an error.
func (f *fetcher) others() string {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		if strings.HasSuffix(name, ".gguf") {
			found = append(found, f.ref.id+"/"+name)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return "; it has GGUF files, each of which can be named: " + strings.Join(found, ", ")
}

// get fetches one file unless it is in the cache.
func (f *fetcher) get(ctx context.Context, name string) error {
	path := filepath.Join(f.cache.snapshot(f.commit), filepath.FromSlash(name))
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	size, etag, err := f.head(ctx, name)
	if err != nil {
		return fmt.Errorf("fetch %s: %w", name, err)
	}
	for range fetchAttempts {
		stop := f.report(name, filepath.Join(f.cache.dir, "blobs", etag+".downloading"), size)
		err = hubcache.Guarded(ctx, func() error {
			_, err := f.repo.DownloadFile(name)
			return err
		})
		stop()
		if err != nil {
			return fmt.Errorf("fetch %s: %w", name, err)
		}
		stat, statErr := os.Stat(path)
		if statErr != nil {
			return fmt.Errorf("fetch %s: %w", name, statErr)
		}
		if size <= 0 || stat.Size() == size {
			if f.opts.Progress != nil {
				f.opts.Progress(name, stat.Size(), stat.Size())
			}
			return nil
		}
		err = fmt.Errorf("fetch %s: got %d of %d bytes", name, stat.Size(), size)
		if discardErr := hubcache.Discard(path); discardErr != nil {
			return errors.Join(err, discardErr)
		}
	}
	return fmt.Errorf("%w, %d times in a row", err, fetchAttempts)
}

// head asks for the size and the entity tag of a file; large ones are served from another host after a redirect, whose
// first answer says the size.
func (f *fetcher) head(ctx context.Context, name string) (size int64, etag string, err error) {
	address, err := f.repo.FileURL(name) // needs no network: list has been called
	if err != nil {
		return 0, "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, address, nil)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Accept-Encoding", "identity")
	if f.opts.Token != "" {
		request.Header.Set("Authorization", "Bearer "+f.opts.Token)
	}
	var linked string
	client := &http.Client{Timeout: time.Minute, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if s := r.Response.Header.Get(hub.HeaderXLinkedSize); s != "" {
			linked = s
		}
		if len(via) >= 10 {
			return errors.New("stopped after 10 redirects")
		}
		return nil
	}}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return 0, "", fmt.Errorf("bad status code %d from %s", response.StatusCode, address)
	}
	if s := response.Header.Get(hub.HeaderXLinkedSize); s != "" {
		linked = s
	}
	if etag = response.Header.Get(hub.HeaderXLinkedETag); etag == "" {
		etag = response.Header.Get("ETag")
	}
	size = response.ContentLength
	if n, err := strconv.ParseInt(linked, 10, 64); err == nil {
		size = n
	}
	return size, strings.Trim(etag, `"`), nil
}

// report calls Progress with the size of a file as it grows, until stop is called.
func (f *fetcher) report(name, partial string, total int64) (stop func()) {
	if f.opts.Progress == nil {
		return func() {}
	}
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				stat, err := os.Stat(partial)
				if err == nil && stat.Size() > 0 && (total <= 0 || stat.Size() < total) {
					f.opts.Progress(name, stat.Size(), max(total, 0))
				}
			}
		}
	}()
	return func() {
		close(done)
		<-stopped
	}
}
