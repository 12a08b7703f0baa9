package sqlitestore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/storetest"
)

// shared is a file that several processes open.
var shared = storetest.Shared{
	Address: func(t testing.TB) string { return filepath.Join(t.TempDir(), "q.db") },
	Open: func(ctx context.Context, address string) (storetest.Store, error) {
		return sqlitestore.Open(ctx, address, sqlitestore.Options{Timeout: patience})
	},
}

func TestMain(m *testing.M) {
	asHelper()
	if orders, isChild := os.LookupEnv(linearChild); isChild {
		if err := answerForLinear(orders); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	storetest.Main(m, shared)
}

func TestProcesses(t *testing.T) { storetest.Processes(t, shared) }
