package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/parquet-go/parquet-go"
)

// readParquet calls row with each row of a parquet file, as JSON, and its number, counted from 1. Nested lists and
// groups come out as in the JSON the file was made from, so that both formats share one decoder.
func readParquet(path string, row func(number int, text []byte) error) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("data: %w", err)
	}
	number := 0
	// The reader panics on some broken files.
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("data: %s: broken parquet file near row %d: %v", path, number+1, fault)
		}
	}()
	table, err := parquet.OpenFile(file, info.Size())
	if err != nil {
		return fmt.Errorf("data: %s is not a whole parquet file: %w", path, err)
	}
	reader := parquet.NewGenericReader[any](table)
	defer reader.Close()
	rows := make([]any, 64)
	for {
		n, readErr := reader.Read(rows)
		for _, value := range rows[:n] {
			number++
			text, err := json.Marshal(plain(value))
			if err == nil {
				err = row(number, text)
			}
			if err != nil {
				return fmt.Errorf("data: %s: row %d: %w", path, number, err)
			}
		}
		if errors.Is(readErr, io.EOF) {
			break
		} else if readErr != nil {
			return fmt.Errorf("data: %s: after row %d: %w", path, number, readErr)
		}
		if n == 0 {
			return fmt.Errorf("data: %s: after row %d: %w", path, number, io.ErrNoProgress)
		}
	}
	if int64(number) != table.NumRows() {
		return fmt.Errorf("data: %s: %d rows of %d could be read", path, number, table.NumRows())
	}
	return nil
}

// plain turns what the parquet reader gives into what encoding/json writes as the original JSON: bytes are text, and
// numbers that JSON cannot hold are null.
func plain(value any) any {
	switch v := value.(type) {
	case []byte:
		return string(v)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
	case float32:
		return plain(float64(v))
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = plain(v[key])
		}
	}
	return value
}
