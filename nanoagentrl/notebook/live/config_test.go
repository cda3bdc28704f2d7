package live

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConfigIsFoundFromAnyFolderOfTheRepository(t *testing.T) {
	t.Chdir(".") // back at the end
	cfg, err := Config("configs/quickstart.yaml", "steps=3")
	require.NoError(t, err)
	require.Equal(t, 3, cfg.Steps)
	_, err = os.Stat("configs/quickstart.yaml")
	require.NoError(t, err)

	t.Chdir(t.TempDir())
	_, err = Config("configs/quickstart.yaml")
	require.ErrorContains(t, err, "not inside the repository")
	t.Setenv("GONB_DIR", t.TempDir())
	_, err = Config("configs/quickstart.yaml")
	require.Error(t, err)
}
