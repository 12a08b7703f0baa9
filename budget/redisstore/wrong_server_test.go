package redisstore_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/budget/redisstore/redistest"
)

// A URL that names the wrong kind of server is a fault of the configuration, and
// opens no call.
func TestWrongKindsOfServers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	sentinel := watch(t, server.Addr)
	certified := httptest.NewTLSServer(nil) // by nobody
	defer certified.Close()
	for url, says := range map[string]string{
		"redis+cluster://" + server.Addr:                            "it is no cluster",
		"rediss://" + strings.TrimPrefix(certified.URL, "https://"): "its certificate",
		"redis+sentinel://" + sentinel.Addr + "/other":              "know no such master",
		"redis+sentinel://" + server.Addr + "/main":                 "does not know a command",
	} {
		_, err := decide(t.Context(), openStore(t, url, redisstore.Options{}), budget.Item{ID: "a", Operation: "op", Units: 1})
		if !errors.Is(err, budget.ErrStoreConfig) || errors.Is(err, budget.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want ErrStoreConfig that says %q", url, err, says)
		}
	}
}
