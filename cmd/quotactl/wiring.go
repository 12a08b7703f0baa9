package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/open"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/secret"
	"github.com/quotactl/quotactl/jobs"
)

// app is what the commands share: the streams, the environment and the global
// flags, which are resolved before a command runs.
type app struct {
	stdout, stderr io.Writer
	env            func(string) (string, bool)
	now            func() time.Time
	size           screen.Sized
	zone           *time.Location // of the times on a terminal

	store open.Backend // is used instead of the one that is named; nil: that is opened

	on, onErrors func() screen.Screen // what the streams are; nil: not known yet
	live         *screen.Live         // says what takes long
	terminal     io.Writer            // standard output, beside the live line
	configPath   string
	storeURL     string // empty: the configuration's
	storeFlag    bool   // storeURL was given as a flag
	sandboxed    bool   // storeURL is the sandbox's own
	inSandbox    bool   // the sandbox's store is asked for, by a command other than run
	logFormat    string // auto, words, text or json
	logLevel     string // as slog reads it
	colour       string // a screen.Use
}

// loadConfig reads the configuration with its store's URL and its jobs. The error, exit
// code 2, has all faults of the configuration at once. A configuration returned with an
// error serves only for its warnings.
func (a *app) loadConfig() (*config.Config, []*jobs.Job, error) {
	return checked(config.Parse(a.configPath))
}

func checked(cfg *config.Config, err error) (*config.Config, []*jobs.Job, error) {
	if err != nil {
		return nil, nil, &exitError{code: exitUsage, err: err}
	}
	list := jobs.Load(cfg)
	if err := open.Check(cfg.Store.URL); err != nil {
		cfg.StoreFault(err)
	}
	if err := cfg.Err(); err != nil {
		return cfg, nil, &exitError{code: exitUsage, err: err}
	}
	return cfg, list, nil
}

// storeAt is the URL of the store to use.
func (a *app) storeAt(cfg *config.Config) string {
	if a.storeURL != "" {
		return a.storeURL
	}
	return cfg.Store.URL
}

// openStore opens the store that flag, environment or configuration name, with
// this host's side of its outages; the sandbox's is a toy that knows none. The
// caller closes it.
func (a *app) openStore(ctx context.Context, cfg *config.Config) (open.Backend, error) {
	if a.inSandbox {
		if err := a.useSandbox(cfg); err != nil {
			return nil, err
		}
	}
	if a.store != nil {
		return a.store, nil
	}
	if a.sandboxed {
		return open.Store(ctx, a.storeAt(cfg), cfg.Store)
	}
	return open.Host(ctx, cfg, a.storeAt(cfg), a.logger())
}

// budget opens a budget of the configuration on a store; the store stays the
// caller's to close. The error is budget.ErrUnknownBudget for a wrong name.
func (a *app) budget(cfg *config.Config, store driver.Store, name string) (*budget.Budget, error) {
	return open.BudgetOn(store, cfg, a.storeAt(cfg), name, budget.WithLog(a.logger()))
}

// reader reads what the store knows by a configuration; the store stays the caller's to close.
func (a *app) reader(cfg *config.Config, list []*jobs.Job, store open.Backend) *look.Reader {
	return &look.Reader{
		Config: cfg, Jobs: list, Store: store, URL: secret.RedactURL(a.storeAt(cfg)), Now: a.now, Log: a.logger(),
		Open: func(name string) (*budget.Budget, error) { return a.budget(cfg, store, name) },
	}
}

// useSandbox makes the sandbox's own store, beside the configuration, the one
// to use.
func (a *app) useSandbox(cfg *config.Config) error {
	if a.storeFlag {
		return usage("--sandbox uses its own store: leave --store out")
	}
	a.sandboxed = true
	a.storeURL = "sqlite:" + filepath.Join(filepath.Dir(cfg.File), "sandbox.db")
	return nil
}

// logger writes logs to stderr as the global flags say.
func (a *app) logger() *slog.Logger {
	var level slog.Level
	if level.UnmarshalText([]byte(a.logLevel)) != nil { // checked with the flags
		level = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: level}
	switch {
	case a.logFormat == "json":
		return slog.New(slog.NewJSONHandler(a.stderr, options))
	case a.logFormat == "words", a.logFormat == "auto" && a.errorScreen().Terminal:
		return slog.New(screen.NewEvents(a.stderr, a.onErrors, options))
	}
	return slog.New(slog.NewTextHandler(a.stderr, options))
}

// untilSignal is ctx until the first Ctrl-C or SIGTERM. Every command but run
// stops at once then; run drains.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// screen is what standard output is, now.
func (a *app) screen() screen.Screen {
	if a.on == nil { // no command has begun
		return screen.Pipe()
	}
	return a.on()
}

// errorScreen is what standard error is, now.
func (a *app) errorScreen() screen.Screen {
	if a.onErrors == nil {
		return screen.Pipe()
	}
	return a.onErrors()
}

// output finds out what the streams are, and keeps the last line of a terminal for what takes
// long.
func (a *app) output() {
	at := screen.Where{Size: a.size, Env: a.env, Zone: a.zone, Colour: screen.Use(a.colour)}
	stdout, stderr := a.stdout, a.stderr
	a.terminal = stdout
	a.on = func() screen.Screen { return at.Of(stdout, a.now()) }
	a.onErrors = func() screen.Screen { return at.Of(stderr, a.now()) }
	a.live = screen.NewLive(stderr, a.onErrors)
	a.stdout, a.stderr = a.live.Above(stdout), a.live.Above(stderr)
}
