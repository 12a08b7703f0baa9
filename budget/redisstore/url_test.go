package redisstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/internal/redistest"
)

func TestURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://localhost", "redis://127.0.0.1:6380/3", "redis://user:p%40ss@h:1/0", "redis://:pw@h", "redis://[::1]:6379",
		"rediss://h:6379?db=2", "unix:///run/redis.sock", "unix:///run/redis.sock?db=1",
		"redis+sentinel://a,b:26380,c/mymaster", "redis+sentinel://a/mymaster?db=3", "redis+cluster://a,b:7001", "redis+ring://a,b,c:7002?db=1",
	} {
		store, err := redisstore.Open(t.Context(), url, redisstore.Options{})
		if err != nil || redisstore.Check(url) != nil {
			t.Errorf("%s: %v, Check says %v", url, err, redisstore.Check(url))
			continue
		}
		_ = store.Close()
	}
	for url, says := range map[string]string{
		"localhost:6379":                 "scheme",
		"http://h":                       "scheme",
		"redis://":                       "host",
		"redis://s3cret:s3cret@":         "host",
		"redis://h:s3cret":               "host",
		"redis://h:70000":                "port",
		"redis://a,b":                    "several hosts",
		"redis://h/one":                  "database",
		"redis://h/-1":                   "database",
		"redis://h/1/2":                  "database",
		"redis://h?timeout=1":            "unknown parameter",
		"redis://u:s3cret%zz@h":          "percent-encoded",
		"redis://u:x/s3cret@h:1/0":       "database",
		"redis://u:x?s3cret@h:1/0":       "parameter",
		"redis://u:s3cret/x@h:1/0":       "database",
		"redis:s3cret@h://":              "scheme",
		"unix://host/path":               "absolute path",
		"unix://":                        "absolute path",
		"redis+sentinel://a,b":           "master's name",
		"redis+cluster://a/1":            "is not a database",
		"redis+cluster://a?db=1":         "no databases",
		"redis+ring://a,,b":              "host",
		"redis+ring://u:s3cret@a,b@c:xy": "host",
	} {
		store, err := redisstore.Open(t.Context(), url, redisstore.Options{})
		if err == nil {
			_ = store.Close()
			t.Errorf("%s was taken", url)
			continue
		}
		if checked := redisstore.Check(url); checked == nil || checked.Error() != err.Error() {
			t.Errorf("%s: Check says %v, Open %v", url, checked, err)
		}
		if !errors.Is(err, driver.ErrStoreConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want ErrStoreConfig saying %q", url, err, says)
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error holds the password: %v", url, err)
		}
	}
}

// A database that the server does not have is a fault of the URL, not an outage.
func TestNoSuchDatabase(t *testing.T) {
	t.Parallel()
	server, member := redistest.Start(t), redistest.Start(t, "--cluster-enabled", "yes")
	for _, url := range []string{server.URL(16), server.URL(99), member.URL(1)} {
		store := openStore(t, url, redisstore.Options{})
		_, decided := decide(t.Context(), store, driver.Item{ID: "a", Operation: "op", Units: 1})
		_, job := store.Job(t.Context(), "j")
		for _, err := range []error{store.Ping(t.Context()), decided, job} {
			if !errors.Is(err, driver.ErrStoreConfig) || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "correct the number") {
				t.Errorf("%s: %v, want ErrStoreConfig", url, err)
			}
		}
	}
	charge(t, openStore(t, server.URL(15), redisstore.Options{}), "a")
}

// Keys and scripts take a prefix unchanged: a Go program gives one as costs.toml may have it.
func TestPrefixIsAName(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"a\x00b", "{a}", "a b", strings.Repeat("a", 64)} {
		if store, err := redisstore.Open(t.Context(), "redis://h", redisstore.Options{Prefix: prefix}); !errors.Is(err, driver.ErrStoreConfig) || store != nil {
			t.Errorf("prefix %q: %v, want ErrStoreConfig", prefix, err)
		}
	}
}

func FuzzURL(f *testing.F) {
	for _, seed := range []string{"redis://h:1/2", "redis+sentinel://a,b/m", "unix:///s", "redis://u:p@[::1]:2?db=3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, url string) {
		store, err := redisstore.Open(t.Context(), url, redisstore.Options{})
		if err == nil {
			_ = store.Close()
		} else if !errors.Is(err, driver.ErrStoreConfig) {
			t.Fatalf("%q: %v", url, err)
		}
	})
}
