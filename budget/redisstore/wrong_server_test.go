package redisstore_test

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
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
		"redis+cluster://" + server.Addr:                            "it is not a cluster",
		"rediss://" + strings.TrimPrefix(certified.URL, "https://"): "its certificate",
		"redis+sentinel://" + sentinel.Addr + "/other":              "know no such master",
		"redis+sentinel://" + server.Addr + "/main":                 "does not know a command",
	} {
		_, err := decide(t.Context(), openStore(t, url, redisstore.Options{}), driver.Item{ID: "a", Operation: "op", Units: 1})
		if !errors.Is(err, driver.ErrStoreConfig) || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want ErrStoreConfig that says %q", url, err, says)
		}
	}
}

// A server gets a password while it runs. It answers a call that is longer than what
// it reads from strangers in words of its own.
func TestWrongPasswordOfARunningServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := openStore(t, server.URL(0), redisstore.Options{})
	charge(t, store, "before")
	admin := server.Client()
	must.Do(t, admin.ConfigSet(t.Context(), "requirepass", "secret").Err())
	must.Do(t, admin.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
	_, err := decide(t.Context(), store, driver.Item{ID: "after", Operation: "op", Units: 1}, driver.Item{ID: "other", Operation: "of more keys", Units: 1})
	if !errors.Is(err, driver.ErrStoreConfig) || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "give the password") || !strings.Contains(err.Error(), "unauthenticated") {
		t.Errorf("%v, want ErrStoreConfig that asks for the password", err)
	}
}
