package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/alert"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/jobview"
	"github.com/quotactl/quotactl/internal/look"
	"github.com/quotactl/quotactl/internal/screen"
	"github.com/quotactl/quotactl/internal/view"
)

// statusFlags are the flags of status.
type statusFlags struct {
	failUnder string
	least     answer.Threshold // failUnder, read
	top       int              // how many of the budgets of "*" to show; 0: not them
	limit     string           // the only one to show; empty: all
	operation string           // whose limits to show; empty: all
	judge     bool             // by it
	all       bool             // every limit and note, also on a terminal
	json      bool
	server    string // a daemon to ask; empty: the store is read

	tokenEnv, tokenFile string // where its token is
	watchFlags
}

func newStatusCommand(a *app) *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status [BUDGET]",
		Short: "Show what is left in each budget, and when more returns",
		Long: `Show what is used and left in each limit, when more returns, and the last and
next pass of each job. This spends nothing.

Beside a budget's name is what is left of its tightest limit: of those that
cover an operation charged within their window, the one with the smallest part
left, in units or calls. A locked limit has nothing left. Buckets, open calls
and windows below a minute are the tightest only while they are locked, or if
there is no other limit. --limit and --operation show and judge only some.

--fail-under is for scripts: exit code 75, and a line on standard error for each
budget that has less left of its tightest limit, in what that counts or in per
cent of it.

--top N shows the N fullest budgets of credentials "*", by the part that is left
of their tightest limits. It looks at all of them.

--server asks a daemon that runs with --listen. It needs neither a configuration
nor the store's password: with the daemon's read token, a colleague may look and
not spend.`,
		Example: `  quotactl status
  quotactl status --fail-under 10% >/dev/null
  quotactl status github/user1 --operation rest.read
  quotactl status --top 10
  quotactl status --watch
  quotactl status youtube/key1 --json
  quotactl status --server https://jobs.internal:8443 --token-env READ_TOKEN`,
		ValidArgsFunction: a.completeBudget,
		Args:              arguments(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if f.judge = cmd.Flags().Changed("fail-under"); f.judge {
				if f.least, err = answer.ParseThreshold(f.failUnder); err != nil {
					return usage("--fail-under %q: %w", f.failUnder, err)
				}
			}
			if f.server == "" && (f.tokenEnv != "" || f.tokenFile != "") {
				return usage("--token-env and --token-file are for --server: give it too")
			}
			if f.server != "" && (a.storeFlag || a.inSandbox) {
				return usage("--server asks a daemon: leave --store and --sandbox out")
			}
			if changed := cmd.Flags().Changed("top"); changed && f.top < 1 {
				return usage("--top %d: use 1 or more", f.top)
			} else if changed && (f.server != "" || len(args) > 0) {
				return usage("--top reads the store for the budgets of credentials \"*\": leave --server and the budget's name out")
			}
			if f.judge && f.watch {
				return usage("--fail-under judges one look: leave --watch out")
			}
			if err := f.check(cmd.Flags().Changed); err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.status(ctx, args, f)
		},
	}
	a.sandboxFlag(cmd)
	f.add(cmd)
	verboseFlag(cmd, &f.all)
	cmd.Flags().StringVar(&f.failUnder, "fail-under", "", "exit with 75 if less than `LEAST` is left: units or calls, or a percentage of the limit")
	cmd.Flags().IntVar(&f.top, "top", 0, "only the `N` fullest budgets of credentials \"*\"")
	cmd.Flags().StringVar(&f.limit, "limit", "", "only the limit of this `NAME`")
	cmd.Flags().StringVar(&f.operation, "operation", "", "only the limits that cover the operation of this `NAME`")
	cmd.Flags().StringVar(&f.server, "server", "", "ask the daemon at `URL`, as https://HOST:PORT, instead of the store")
	cmd.Flags().StringVar(&f.tokenEnv, "token-env", "", "with --server, the token is in this environment `VARIABLE`")
	cmd.Flags().StringVar(&f.tokenFile, "token-file", "", "with --server, the token is in this `FILE`")
	cmd.MarkFlagsMutuallyExclusive("token-env", "token-file")
	cmd.Flags().BoolVar(&f.json, "json", false, "answer in JSON")
	return cmd
}

// status shows the budgets named, or all, and their jobs.
func (a *app) status(ctx context.Context, names []string, f statusFlags) (err error) {
	read, stop, err := a.overviews(ctx, names, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if f.limit != "" || f.operation != "" {
		whole := read
		read = func(ctx context.Context) (look.Overview, any, error) {
			seen, _, err := whole(ctx)
			if err != nil {
				return seen, nil, err
			}
			if err := seen.Only(f.limit, f.operation); err != nil {
				return seen, nil, usage("%w", err)
			}
			return seen, seen.JSON(), nil
		}
	}
	if f.watch {
		return a.watch(ctx, f.watchFlags, f.json, func(ctx context.Context) (watched, error) {
			seen, asJSON, err := read(ctx)
			return watched{text: func(on screen.Screen) string { return onOneScreen(on, seen, f.all) }, json: asJSON, lines: statusLines(seen)}, err
		})
	}
	done := a.reading("reading what is left")
	seen, asJSON, err := read(ctx)
	done()
	switch {
	case err != nil:
		return err
	case f.json:
		err = writeJSON(a.stdout, asJSON)
	default:
		text := statusText(a.screen(), seen, f.all)
		if len(seen.Budgets) == 1 {
			text = onOneScreen(a.screen(), seen, f.all)
		}
		err = writeText(a.stdout, text)
	}
	if !f.judge {
		return err
	}
	return errors.Join(err, under(seen.Budgets, f.least))
}

// overviews returns what reads the overview, from a daemon or from the store, and its JSON; and
// what is to be called at the end.
func (a *app) overviews(ctx context.Context, names []string, f statusFlags) (read func(context.Context) (look.Overview, any, error), stop func() error, err error) {
	if f.server != "" {
		token, err := a.tokenOf(f)
		if err != nil {
			return nil, nil, err
		}
		server, err := look.NewServer(f.server, token)
		if err != nil {
			return nil, nil, usage("--server: %w", err)
		}
		return func(ctx context.Context) (look.Overview, any, error) {
			seen, text, err := server.Overview(ctx, names)
			return seen, text, err
		}, func() error { return nil }, nil
	}
	cfg, list, err := a.loadConfig()
	if err != nil {
		return nil, nil, err
	}
	if len(names) > 0 {
		if _, err := cfg.Spec(names[0]); err != nil {
			return nil, nil, err
		}
	}
	store, err := a.openStore(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	reader := a.reader(cfg, list, store)
	if f.watch {
		reader.Keeps = forecastKept
	}
	if len(names) == 0 && f.top == 0 {
		names = reader.Budgets()
	}
	if f.operation != "" {
		if names, err = cfg.Pricing(names, f.operation); err != nil {
			return nil, nil, errors.Join(err, store.Close())
		}
	}
	return func(ctx context.Context) (look.Overview, any, error) {
		shown := names
		if f.top > 0 {
			if shown, err = topNames(ctx, reader, f.top); err != nil {
				return look.Overview{}, nil, err
			}
		}
		seen, err := reader.Overview(ctx, shown)
		return seen, seen.JSON(), err
	}, store.Close, nil
}

// topNames are the fullest budgets of credentials "*".
func topNames(ctx context.Context, reader *look.Reader, n int) (names []string, err error) {
	top, _, err := reader.Top(ctx, n)
	for _, status := range top {
		names = append(names, status.Budget)
	}
	return names, err
}

// tokenOf is the token for a daemon that is asked; empty: it needs none.
func (a *app) tokenOf(f statusFlags) (string, error) {
	switch {
	case f.tokenEnv != "":
		token, ok := a.env(f.tokenEnv)
		if !ok {
			return "", usage("--token-env: the environment has no variable of that name; set it")
		}
		return token, nil
	case f.tokenFile != "":
		token, err := config.ReadSecret(f.tokenFile)
		if err != nil {
			return "", usage("--token-file: %w", err)
		}
		return strings.TrimRight(string(token), "\r\n"), nil
	}
	return "", nil
}

// under is an error, with exit code 75, that names each budget that has less left than the
// threshold. A budget that cannot be judged is an error too, since silence would look as if
// enough were left.
func under(budgets []budget.Status, least answer.Threshold) error {
	var faults []error
	code := exitUsage
	for _, b := range budgets {
		text, err := least.Under(b)
		switch {
		case err != nil:
			faults = append(faults, fmt.Errorf("--fail-under cannot judge %s: %w; name a budget that it can judge", b.Budget, err))
		case text != "":
			faults, code = append(faults, errors.New(text)), exitExhausted
		}
	}
	if len(budgets) == 0 {
		faults = append(faults, errors.New("--fail-under has no budget to judge: name those of a credential \"*\""))
	}
	if len(faults) == 0 {
		return nil
	}
	return &exitError{code: code, err: errors.Join(faults...)}
}

// statusText shows the overview: on a terminal at a glance, else as tables.
func statusText(on screen.Screen, o look.Overview, all bool) string {
	var parts []string
	alone := jobview.Unstarted(o.Jobs, o.Daemons)
	if alone && on.Terminal {
		parts = append(parts, jobview.NoDaemon(on))
	}
	for _, b := range o.Budgets {
		if on.Terminal {
			parts = append(parts, view.Glance(on, b, o.Ahead.Budget(b.Budget), all))
			continue
		}
		parts = append(parts, view.Budget(on, b, o.Ahead.Budget(b.Budget)))
	}
	if len(o.Jobs) > 0 {
		parts = append(parts, jobview.Summary(on, o.Jobs, o.At).String())
	}
	if alone && !on.Terminal {
		parts = append(parts, jobview.NoDaemon(on))
	}
	if lines := alert.Lines(o.Alerts); lines != "" && !on.Terminal {
		parts = append(parts, lines)
	} else if lines != "" {
		parts = append(parts, on.Wrap(on.Bad("✗ "), strings.ReplaceAll(strings.TrimSpace(lines), "\n", "; ")))
	}
	if o.Aside != "" {
		parts = append(parts, on.Wrap(on.Bad("✗ "), "files of the state directory are set aside: "+o.Aside+"; see quotactl doctor"))
	}
	if on.Terminal {
		parts = append(parts, view.AsOf(on, o.At, o.Store))
	}
	return strings.Join(parts, "\n")
}

// onOneScreen shows the overview on one screen if it fits there with fewer limits of each budget.
func onOneScreen(on screen.Screen, o look.Overview, all bool) string {
	text, smaller := statusText(on, o, all), on
	for !all && on.Terminal && strings.Count(text, "\n") >= on.Height && smaller.Height > 1 {
		smaller.Height--
		text = statusText(smaller, o, all)
	}
	return text
}

// statusLines are what a watch tells a pipe of.
func statusLines(o look.Overview) (list []watchedLine) {
	for _, b := range o.Budgets {
		list = append(list, watchedLine{b.Budget, view.Left(screen.Pipe(), b)})
	}
	for _, job := range o.Jobs {
		list = append(list, watchedLine{"job " + job.Name, jobview.Brief(job)})
	}
	return list
}
