package data

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gomlx/go-huggingface/hub"

	"github.com/nano-agentrl/nano-agentrl/nanoagentrl/internal/hubcache"
)

// HubOptions says how a file of a data set is fetched. The zero value follows the environment variables of Python's
// huggingface_hub.
type HubOptions struct {
	// CacheDir is where files are kept, in the layout that huggingface_hub shares; "" means $HF_HUB_CACHE, $HF_HOME/hub, or
	// ~/.cache/huggingface/hub.
	CacheDir string
	// Offline forbids any network access; $HF_HUB_OFFLINE does so too.
	Offline bool
	// Note is told, in a sentence, what is fetched and when a copy is used because the hub cannot be reached; nil drops it.
	Note func(message string)
}

func (o HubOptions) withEnvironment() HubOptions {
	switch strings.ToUpper(os.Getenv("HF_HUB_OFFLINE")) {
	case "1", "ON", "YES", "TRUE":
		o.Offline = true
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
	if o.Note == nil {
		o.Note = func(string) {}
	}
	return o
}

// fetchAttempts is how often a file is fetched before a wrong size is an error.
const fetchAttempts = 3

// fetchFile returns the path of a file of a data set's repository, which it fetches unless it is in the cache. If the hub
// cannot be reached, a copy in the cache is used. It returns when ctx ends, while a transfer may go on in the background.
func fetchFile(ctx context.Context, repo, file string, o HubOptions) (string, error) {
	o = o.withEnvironment()
	dir := filepath.Join(o.CacheDir, "datasets--"+strings.ReplaceAll(repo, "/", "--"))
	copied, copyErr := cached(dir, file)
	if o.Offline {
		if copyErr != nil {
			return "", fmt.Errorf("%s of %s is not in the cache, and offline mode is on: %w", file, repo, copyErr)
		}
		return copied, nil
	}
	path, err := fetchWhole(ctx, repo, file, o)
	var network *url.Error
	if err != nil && copyErr == nil && errors.As(err, &network) && ctx.Err() == nil {
		o.Note(fmt.Sprintf("the hub cannot be reached (%v); using the copy of %s in the cache", network, file))
		return copied, nil
	}
	if err != nil {
		return "", fmt.Errorf("%s could not be fetched from %s on the hub: %w", file, repo, err)
	}
	return path, nil
}

// fetchWhole fetches a file through go-huggingface, which (v0.3.1) takes a transfer that breaks off for success, so that
// its size is compared here.
func fetchWhole(ctx context.Context, repo, file string, o HubOptions) (string, error) {
	r := hub.New(repo).WithType(hub.RepoTypeDataset).WithAuth(os.Getenv("HF_TOKEN")).WithCacheDir(o.CacheDir)
	r.Verbosity = 0
	var address string
	err := hubcache.Guarded(ctx, func() (err error) {
		address, err = r.FileURL(file) // asks the hub for the commit
		return err
	})
	if err != nil {
		return "", err
	}
	size, err := sizeOf(ctx, address)
	if err != nil {
		return "", err
	}
	o.Note(fmt.Sprintf("data set file %s of %s, %d bytes", file, repo, size))
	for range fetchAttempts {
		var path string
		err = hubcache.Guarded(ctx, func() (err error) {
			path, err = r.DownloadFile(file)
			return err
		})
		if err != nil {
			return "", err
		}
		info, statErr := os.Stat(path)
		if statErr != nil {
			return "", statErr
		}
		if size <= 0 || info.Size() == size {
			return path, nil
		}
		err = fmt.Errorf("%d bytes of %d came, %d times in a row", info.Size(), size, fetchAttempts)
		if gone := hubcache.Discard(path); gone != nil {
			return "", errors.Join(err, gone)
		}
	}
	return "", err
}

// sizeOf asks for the size of a file; large ones are served from elsewhere, and the first answer says it.
func sizeOf(ctx context.Context, address string) (size int64, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, address, nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("Accept-Encoding", "identity")
	if token := os.Getenv("HF_TOKEN"); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Timeout: time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	if response.StatusCode >= 400 {
		return 0, fmt.Errorf("status %d for %s", response.StatusCode, address)
	}
	if size, err = strconv.ParseInt(response.Header.Get(hub.HeaderXLinkedSize), 10, 64); err == nil {
		return size, nil
	}
	if response.StatusCode == http.StatusOK {
		return response.ContentLength, nil
	}
	return 0, nil // a redirect that does not say it
}
