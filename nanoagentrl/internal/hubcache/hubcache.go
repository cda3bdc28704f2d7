// Package hubcache holds what fetching models and fetching data sets from the hub have in common.
package hubcache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Discard removes a file of the cache that is not complete: the link in the snapshot and what it points to.
func Discard(path string) error {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	err = os.Remove(path)
	if target != path {
		err = errors.Join(err, os.Remove(target))
	}
	return err
}

// Guarded runs a call of go-huggingface, turns a panic into an error, and returns early when ctx ends.
func Guarded(ctx context.Context, call func() error) error {
	result := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				result <- fmt.Errorf("go-huggingface: %v", r)
			}
		}()
		result <- call()
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
