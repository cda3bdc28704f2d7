//go:build tools

package deps

import (
	_ "github.com/agnivade/levenshtein"
	_ "github.com/dlclark/regexp2"
	_ "github.com/gomlx/go-huggingface/hub"
	_ "github.com/gomlx/go-xla/pkg/pjrt"
	_ "github.com/gomlx/gomlx/backends/simplego"
	_ "github.com/gomlx/gomlx/backends/xla"
	_ "github.com/gomlx/gomlx/pkg/core/graph"
	_ "github.com/janpfeifer/must"
	_ "github.com/nikolalohinski/gonja/v2"
	_ "github.com/parquet-go/parquet-go"
	_ "github.com/schollz/progressbar/v3"
	_ "github.com/spf13/pflag"
	_ "github.com/stretchr/testify/require"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/text/unicode/norm"
	_ "gonum.org/v1/plot"
)
