package open_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/budget/sqlitestore"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"github.com/quotactl/quotactl/internal/redistest"
)

const upstream = `
[upstream.youtube.costs]
"search.list" = 100
[upstream.youtube.limit.daily]
quota  = 250
window = "24h"
[upstream.youtube.credential.key1]
`

// write writes a configuration and answers its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "costs.toml")
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// A budget's Store is that of its file, whatever links lead there.
func TestStoresBySeveralPaths(t *testing.T) {
	path := write(t, upstream)
	cfg := must.Get(config.Load(path))(t)
	dir, linked := t.TempDir(), filepath.Join(t.TempDir(), "linked")
	must.Do(t, os.Symlink(dir, linked))
	var stores []string
	for _, file := range []string{filepath.Join(dir, "a.db"), filepath.Join(linked, "a.db"), filepath.Join(dir, "b.db")} {
		store := must.Get(open.Store(t.Context(), "sqlite:"+file, cfg.Store))(t)
		b := must.Get(open.BudgetOn(store, cfg, "sqlite:"+file, "youtube/key1"))(t)
		stores = append(stores, b.Spec().Store)
		must.Do(t, b.Close())
		must.Do(t, store.Close())
	}
	check.Equal(t, stores[1], stores[0], "through a link")
	check.Equal(t, stores[2] != stores[0], true, "another file")
}

func TestBudgetOnRedis(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client()
	must.Do(t, admin.ConfigSet(t.Context(), "requirepass", "pa55word").Err()) // it is in already
	t.Setenv("STORE_PASSWORD", "pa55word")
	path := write(t, "[store]\nurl = \"redis://"+server.Addr+"\"\nprefix = \"mine\"\npassword_env = \"STORE_PASSWORD\"\ntimeout = \"5s\"\n"+upstream)
	b := must.Get(open.Budget(t.Context(), path, "youtube/key1"))(t)
	defer func() { _ = b.Close() }()
	must.Equal(t, must.Get(b.Charge(t.Context(), budget.Call{Operation: "search.list"}))(t).Remaining, 150)
	for _, key := range must.Get(admin.Keys(t.Context(), "*").Result())(t) {
		must.Equal(t, strings.HasPrefix(key, "mine:v1:{youtube/key1}:"), true, "key", key)
	}
	must.Equal(t, b.Spec().Timeout, 40*5*time.Second, "a call that is starved may ask the store again, in all for")
}

// The file of an SQLite store lies beside the configuration, and two handles
// share it.
func TestBudgetOnSQLite(t *testing.T) {
	path := write(t, upstream)
	for want := int64(150); want >= 50; want -= 100 {
		b := must.Get(open.Budget(t.Context(), path, "youtube/key1"))(t)
		must.Equal(t, must.Get(b.Charge(t.Context(), budget.Call{Operation: "search.list"}))(t).Remaining, want, "left")
		must.Do(t, b.Close())
	}
	must.Get(os.Stat(filepath.Join(filepath.Dir(path), "quotactl.db")))(t)
}

func TestBudgetRefuses(t *testing.T) {
	var faults config.Errors
	if _, err := open.Budget(t.Context(), write(t, "[upstream.youtube]\n"), "youtube/key1"); !errors.As(err, &faults) || len(faults) < 3 {
		t.Errorf("a faulty file: %v", err)
	}
	if _, err := open.Budget(t.Context(), write(t, upstream), "youtube/key2"); !errors.Is(err, budget.ErrUnknownBudget) || !strings.Contains(err.Error(), "youtube/key1") {
		t.Errorf("an unknown budget: %v", err)
	}
	check.Is(t, check.Err(open.Budget(t.Context(), filepath.Join(t.TempDir(), "none.toml"), "youtube/key1")), os.ErrNotExist, "no file")
	if _, err := open.Budget(t.Context(), write(t, "[store]\nurl = \"redis://h\"\npassword_env = \"QUOTACTL_TEST_UNSET\"\n"+upstream), "youtube/key1"); !errors.Is(err, budget.ErrStoreConfig) || !strings.Contains(err.Error(), "QUOTACTL_TEST_UNSET") {
		t.Errorf("no password: %v", err)
	}
	check.Is(t, check.Err(open.Store(t.Context(), "redis://a,b", config.Store{})), budget.ErrStoreConfig, "a faulty URL")
}

// A caller that asks whether there is a store to close must not be misled.
func TestNoStoreWithAnError(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, url := range []string{"sqlite:" + filepath.Join(t.TempDir(), "q.db"), "redis://127.0.0.1:1"} {
		if store, err := open.Store(gone, url, config.Store{Prefix: "no prefix"}); err == nil || store != nil {
			t.Errorf("%s: store %#v, error %v; want no store and an error", url, store, err)
		}
	}
}

// Check refuses what Store refuses, and nothing else, without opening it.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for url, says := range map[string]string{
		"sqlite:" + dir + "/q.db":            "",
		"redis://127.0.0.1:1/0":              "",
		"redis+sentinel://127.0.0.1:1/m":     "",
		"redis://h/zz":                       "database",
		"redis://h:99999/0":                  "port",
		"redis+sentinel://a:1":               "master's name",
		"foo://x":                            "begin it with sqlite:, redis://",
		"quotactl.db":                        "begin it with sqlite:, redis://",
		"sqlite:":                            "write \"sqlite:quotactl.db\"",
		"redis+cluster://me:pa55word@a?db=1": "no databases",
		"postgres://me:pa55word@localhost/q": "begin it with sqlite:",
	} {
		err := open.Check(url)
		if says == "" {
			check.NoError(t, err, url)
			continue
		}
		if !errors.Is(err, budget.ErrStoreConfig) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "pa55word") {
			t.Errorf("%s: %v, want ErrStoreConfig saying %q", url, err, says)
		}
		if store, opened := open.Store(t.Context(), url, config.Store{}); opened == nil || opened.Error() != err.Error() {
			t.Errorf("%s: Store says %v (%T), Check %v", url, opened, store, err)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("Check left %v, error %v", files, err)
	}
}

func TestPasswordFile(t *testing.T) {
	server := miniredis.RunT(t)
	server.RequireAuth("pa55word")
	file := filepath.Join(t.TempDir(), "password")
	must.Do(t, os.WriteFile(file, []byte("pa55word\n"), 0o600))
	store := must.Get(open.Store(t.Context(), "redis://"+server.Addr(), config.Store{PasswordFile: file, Timeout: time.Minute}))(t)
	defer func() { _ = store.Close() }()
	must.Get(store.Job(t.Context(), "any"))(t)
}

// A password that is only a line's end is none, and a pipe's writer is not waited for.
func TestPasswordFileHasNoPassword(t *testing.T) {
	t.Parallel()
	blank, pipe := filepath.Join(t.TempDir(), "blank"), filepath.Join(t.TempDir(), "pipe")
	must.Do(t, errors.Join(os.WriteFile(blank, []byte("\r\n"), 0o600), syscall.Mkfifo(pipe, 0o600)))
	for file, want := range map[string]string{
		blank: "[store] password_file: " + blank + " is empty; write the password into it",
		pipe:  "read [store] password_file: " + pipe + " is a pipe, not a regular file",
	} {
		store, err := open.Store(t.Context(), "redis://127.0.0.1:1", config.Store{PasswordFile: file})
		if !errors.Is(err, budget.ErrStoreConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want %q", store, err, want)
		}
	}
}

func TestTimeouts(t *testing.T) {
	for url, want := range map[string]time.Duration{"sqlite:q.db": sqlitestore.DefaultTimeout, "redis://h": redisstore.DefaultTimeout, "redis+ring://a,b": redisstore.DefaultTimeout} {
		check.Equal(t, open.Timeout(url, config.Store{}), want, url)
		check.Equal(t, open.Timeout(url, config.Store{Timeout: time.Second}), time.Second, url)
	}
}

// A program that the daemon started charges for its run.
func TestBudgetInARun(t *testing.T) {
	for name, value := range map[string]string{"QUOTACTL_JOB": "pull", "QUOTACTL_REGION": "US", "QUOTACTL_RUN": "pull/1/US", "QUOTACTL_FENCE": "7"} {
		t.Setenv(name, value)
	}
	path := write(t, upstream)
	b := must.Get(open.Budget(t.Context(), path, "youtube/key1"))(t)
	must.Get(b.Charge(t.Context(), budget.Call{Operation: "search.list"}))(t)
	rows := must.Get(b.Spent(t.Context(), budget.ByRun, 0))(t).Rows
	if len(rows) != 1 || rows[0].Name != "pull/1/US" || rows[0].Units != 100 {
		t.Errorf("spent %+v", rows)
	}
	must.Do(t, b.Fence(t.Context(), "pull", 7))
	_, err := b.Charge(t.Context(), budget.Call{Operation: "search.list"})
	check.Is(t, err, budget.ErrFenced, "declared dead")
	must.Do(t, b.Close())
	t.Setenv("QUOTACTL_FENCE", "x")
	check.Is(t, check.Err(open.Budget(t.Context(), path, "youtube/key1")), budget.ErrInvalid, "no number")
}
