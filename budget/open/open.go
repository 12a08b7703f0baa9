// Package open makes budgets and stores from a costs.toml or a URL. It is the
// only package that knows all stores. A fetch job needs one line, [Budget]; a
// program with several budgets opens the store once with [Store] and hands it
// to budget.New.
package open

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/outage"
	"github.com/quotactl/quotactl/budget/redisstore"
	"github.com/quotactl/quotactl/budget/refusals"
	"github.com/quotactl/quotactl/budget/sqlitestore"
)

// Backend is an opened store: ledgers and the jobs' documents.
type Backend interface {
	driver.Store
	driver.JobStore
}

// Budget opens a budget of a costs.toml on the store that the file names, wrapped by
// package outage as [Host] does. In a run of the daemon, the run completes its calls, as
// [budget.WithRun] says. Close it when done. The error is config.Errors for a
// faulty file, budget.ErrUnknownBudget, or the error from opening the store.
func Budget(ctx context.Context, configPath, name string) (*budget.Budget, error) {
	cfg, err := config.Load(configPath)
	if err != nil {
		return nil, err
	}
	if _, _, err := cfg.Find(name); err != nil {
		return nil, err
	}
	run, err := budget.RunFrom(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	store, err := Host(ctx, cfg, cfg.Store.URL, slog.Default())
	if err != nil {
		return nil, err
	}
	b, err := BudgetOn(store, cfg, cfg.Store.URL, name, budget.WithClosers(store), budget.WithLog(slog.Default()), budget.WithRun(run))
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return b, nil
}

// BudgetOn opens a budget of a configuration on a store that was opened with this URL.
// Closing the budget does not close the store. The error is budget.ErrUnknownBudget for a
// name that the configuration lacks.
func BudgetOn(store driver.Store, cfg *config.Config, url, name string, options ...budget.Option) (*budget.Budget, error) {
	spec, err := cfg.Spec(name)
	if err != nil {
		return nil, err
	}
	spec.Timeout = Timeout(url, cfg.Store)
	spec.WaitDir = filepath.Join(HostDir(cfg, url), "waiting")
	if file, ok := strings.CutPrefix(url, sqlitePrefix); ok { // by the file, whatever links lead to it
		if linked, err := filepath.EvalSymlinks(file); err == nil {
			url = sqlitePrefix + linked
		}
	}
	spec.Store = digest(cfg, url)
	return budget.New(store, spec, options...)
}

// hosted is a store wrapped by packages outage and refusals.
type hosted struct {
	*refusals.Store
	driver.JobStore
	host *outage.Store
}

// OutOfReach is that of [outage.Store].
func (h hosted) OutOfReach() (since time.Time, out bool) { return h.host.OutOfReach() }

// Patience is that of [outage.Store].
func (h hosted) Patience() time.Duration { return h.host.Patience() }

// Diagnose is that of [outage.Store].
func (h hosted) Diagnose(ctx context.Context) []driver.Finding { return h.host.Diagnose(ctx) }

// Crowding is that of [outage.Store].
func (h hosted) Crowding() driver.Finding { return h.host.Crowding() }

// Host opens the store of a configuration at this URL, as [Store] does, and wraps it with
// outage.New, with [HostDir] as the host's directory, and with refusals.New. A store that is
// out of reach at the start is not an error: the first call that reaches it opens it.
func Host(ctx context.Context, config *config.Config, url string, log *slog.Logger) (Backend, error) {
	store, err := StoreOrLater(ctx, url, config.Store)
	if err != nil {
		return nil, err
	}
	sharded, ok := store.(interface{ Sharded() bool })
	host := outage.New(store, outage.Options{
		PerBudget: ok && sharded.Sharded(),
		Dir:       HostDir(config, url), Allowance: config.Store.OutageAllowance, Hosts: config.Store.Hosts,
		Timeout: Timeout(url, config.Store), Log: log,
	})
	return hosted{refusals.New(host, config.Store.RefusalMemory), store, host}, nil
}

// Aside is that of [outage.Store].
func (h hosted) Aside() string { return h.host.Aside() }

// Aside says how many files of this host are set aside because they cannot be used, and
// where; "" if there are none.
func Aside(store Backend) string {
	if h, ok := store.(interface{ Aside() string }); ok {
		return h.Aside()
	}
	return ""
}

// Diagnose reports what may keep a store from doing what it promises.
func Diagnose(ctx context.Context, store Backend) []driver.Finding {
	if d, ok := store.(interface {
		Diagnose(context.Context) []driver.Finding
	}); ok {
		return d.Diagnose(ctx)
	}
	return nil
}

// Crowding reports whether more hosts are at work than configured, once the budgets have
// been asked.
func Crowding(store Backend) []driver.Finding {
	if d, ok := store.(interface{ Crowding() driver.Finding }); ok {
		return []driver.Finding{d.Crowding()}
	}
	return nil
}

// HostDir is the host's directory for a store, for package outage: a folder of the
// store's own in state_dir, else in the environment's STATE_DIRECTORY, else in .quotactl
// beside the configuration file.
func HostDir(config *config.Config, url string) string {
	state := config.StateDir
	if state == "" {
		state = os.Getenv("STATE_DIRECTORY")
	}
	if state == "" {
		state = filepath.Join(filepath.Dir(config.File), outage.DefaultDir)
	}
	return filepath.Join(state, "outage", digest(config, url))
}

// digest identifies a store.
func digest(config *config.Config, url string) string {
	sum := sha256.Sum256([]byte(config.Store.Prefix + " " + place(url)))
	return hex.EncodeToString(sum[:6])
}

// place is a store's URL without user and password; for a file, with its absolute path.
func place(url string) string {
	if file, ok := strings.CutPrefix(url, sqlitePrefix); ok {
		if full, err := filepath.Abs(file); err == nil {
			return sqlitePrefix + full
		}
		return url
	}
	scheme, rest, _ := strings.Cut(url, "://")
	authority, path, _ := strings.Cut(rest, "/")
	return scheme + "://" + authority[strings.LastIndex(authority, "@")+1:] + "/" + path
}

// Timeout is the bound on one decision: the settings' timeout, else the store's own
// default.
func Timeout(url string, settings config.Store) (d time.Duration) {
	switch {
	case settings.Timeout > 0:
		return settings.Timeout
	case isSQLite(url):
		return sqlitestore.DefaultTimeout
	}
	return redisstore.DefaultTimeout
}

// Store opens a store by its URL: sqlite:FILE, redis://, rediss://, unix://,
// redis+sentinel://, redis+cluster:// or redis+ring://; package redisstore documents
// their forms. It ignores the settings' own URL. The error wraps budget.ErrStoreConfig or
// budget.ErrUnavailable and never contains a password.
func Store(ctx context.Context, url string, settings config.Store) (Backend, error) {
	if err := Check(url); err != nil {
		return nil, err
	}
	if file, ok := strings.CutPrefix(url, sqlitePrefix); ok {
		return opened(sqlitestore.Open(ctx, file, sqlitestore.Options{Timeout: settings.Timeout, History: settings.History, NoHistory: settings.NoHistory}))
	}
	password, err := password(settings)
	if err != nil {
		return nil, err
	}
	return opened(redisstore.Open(ctx, url, redisstore.Options{
		Prefix: settings.Prefix, Timeout: settings.Timeout, Password: password, History: settings.History, NoHistory: settings.NoHistory,
	}))
}

// opened is nil with an error: an interface that holds a nil pointer would not be.
func opened[S Backend](store S, err error) (Backend, error) {
	if err != nil {
		return nil, err
	}
	return store, nil
}

// Check reports whether [Store] would accept a URL, without opening anything. The error
// wraps budget.ErrStoreConfig and never contains a password.
func Check(url string) error {
	if err := config.CheckStoreURL(url); err != nil {
		return fmt.Errorf("%w: store URL: it %w", budget.ErrStoreConfig, err)
	}
	if isSQLite(url) {
		return nil
	}
	return redisstore.Check(url)
}

// Size is how many bytes the file of a store by its URL takes, with its log; false for a store
// without a file of its own.
func Size(url string) (bytes int64, known bool) {
	file, ok := strings.CutPrefix(url, sqlitePrefix)
	for _, name := range []string{file, file + "-wal"} {
		if info, err := os.Stat(name); ok && err == nil {
			bytes, known = bytes+info.Size(), true
		}
	}
	return bytes, known
}

const sqlitePrefix = "sqlite:"

func isSQLite(url string) bool { return strings.HasPrefix(url, sqlitePrefix) }

// password reads the store's password from where the settings say.
func password(settings config.Store) (string, error) {
	switch {
	case settings.PasswordEnv != "":
		value, ok := os.LookupEnv(settings.PasswordEnv)
		if !ok {
			return "", fmt.Errorf("open the store: %w: the environment has no %s, which [store] password_env names; set it", budget.ErrStoreConfig, config.VariableText(settings.PasswordEnv))
		}
		return value, nil
	case settings.PasswordFile != "":
		value, err := config.ReadSecret(settings.PasswordFile)
		if advice := driver.Shortage("", err); advice != "" {
			return "", fmt.Errorf("open the store: %w: read [store] password_file: %w; %s", budget.ErrUnavailable, err, advice)
		}
		if err != nil {
			return "", fmt.Errorf("open the store: %w: read [store] password_file: %w", budget.ErrStoreConfig, err)
		}
		password := strings.TrimRight(string(value), "\r\n")
		if password == "" {
			return "", fmt.Errorf("open the store: %w: [store] password_file: %s is empty; write the password into it", budget.ErrStoreConfig, settings.PasswordFile)
		}
		return password, nil
	}
	return "", nil
}
