package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// decodeObject decodes one JSON object into out and says in plain words what is wrong with it.
func decodeObject(text []byte, out any) error {
	err := json.Unmarshal(text, out)
	var wrongType *json.UnmarshalTypeError
	switch {
	case err == nil && bytes.Equal(bytes.TrimSpace(text), []byte("null")):
		return errors.New("null where a JSON object should be")
	case errors.As(err, &wrongType) && wrongType.Field == "":
		return fmt.Errorf("a JSON %s where an object should be", wrongType.Value)
	case err != nil:
		return fmt.Errorf("not a JSON object: %w", err)
	}
	return nil
}

// isNull reports whether a key is absent or null.
func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// oneString reads a string; if numbers is true, also a number, as it is written.
func oneString(raw json.RawMessage, key string, numbers bool) (string, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil && raw[0] == '"' {
		return text, nil
	}
	if numbers && isNumber(raw) {
		return string(raw), nil
	}
	return "", fmt.Errorf("%q is %s, not a string", key, kindOf(raw))
}

// stringList reads a list of strings or numbers; a single one counts as a list of one, an absent key or null as none.
func stringList(raw json.RawMessage, key string) ([]string, error) {
	if isNull(raw) {
		return nil, nil
	}
	if raw[0] != '[' {
		text, err := oneString(raw, key, true)
		if err != nil {
			return nil, err
		}
		return []string{text}, nil
	}
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, fmt.Errorf("%q: %w", key, err)
	}
	list := make([]string, 0, len(items))
	for i, item := range items {
		text, err := oneString(item, fmt.Sprintf("%s[%d]", key, i), true)
		if err != nil {
			return nil, err
		}
		list = append(list, text)
	}
	return list, nil
}

func isNumber(raw json.RawMessage) bool {
	return len(raw) > 0 && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9')
}

func kindOf(raw json.RawMessage) string {
	switch {
	case isNull(raw):
		return "null"
	case raw[0] == '{':
		return "an object"
	case raw[0] == '[':
		return "a list"
	case raw[0] == '"':
		return "a string"
	case isNumber(raw):
		return "a number"
	}
	return "a boolean"
}

// isParquet reports whether the file is parquet, by its first bytes.
func isParquet(path string) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("data: %w", err)
	}
	defer file.Close()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(file, magic); err != nil {
		return strings.HasSuffix(path, ".parquet"), nil
	}
	return string(magic) == "PAR1" || strings.HasSuffix(path, ".parquet"), nil
}
