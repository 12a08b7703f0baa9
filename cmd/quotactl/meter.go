package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/gateway"
	"github.com/quotactl/quotactl/internal/proc"
	"github.com/quotactl/quotactl/internal/view"
	"github.com/quotactl/quotactl/jobs"
)

const meterLong = `Run a command, and charge every HTTP call that it and whatever it starts make to
an upstream of the configuration, before the call leaves. The command is not
changed: it gets a proxy on this machine by its environment. Its standard output
is its own.

A call that does not fit waits up to --wait. If it fits within a minute then, it
is answered with 429 and when to retry; else with the upstream's own refusal
(403). With --job, such a refusal ends the command and all that it started; so
does --on-refusal stop. The exit code is then 75, else the command's own; with
--keep-exit always the command's own. It is 69 if the command failed and the
store did not decide a call, and 2 if the configuration lacks something.

With --observe it charges and refuses nothing, reads no configuration, and says
on standard error what the command called; --draft writes a configuration of it.

A program with a list of CAs of its own, or a pinned key, refuses the proxy:
--tunnel HOST lets its calls pass unmetered. See docs/meter.md.`

// meterFlags are the flags of meter.
type meterFlags struct {
	labels    budget.Labels
	budgets   []string
	wait      time.Duration
	onRefusal string
	keepExit  bool
	tunnels   []string
	linger    time.Duration
	java      bool
	noHooks   bool
	quiet     bool
	waits     bool     // --wait was given
	observes  bool     // --observe was given
	hosts     []string // to observe
	draft     string   // file
}

const (
	stopOnRefusal     = "stop"
	continueOnRefusal = "continue"
	defaultLinger     = 10 * time.Minute
	longestClose      = 30 * time.Second // then a signal ends meter after all
)

func newMeterCommand(a *app) *cobra.Command {
	var f meterFlags
	cmd := &cobra.Command{
		Use:   "meter [flags] -- COMMAND [ARG...]",
		Short: "Run a program and charge the calls that it makes",
		Long:  meterLong,
		Example: `  quotactl meter --job nightly -- python3 nightly.py
  quotactl meter --budget youtube/key1 --wait 2m -- ./feeds.sh
  quotactl meter --observe=api.example.com --draft costs.toml -- ./feeds.sh`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
		Args: meterArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.waits, f.observes = cmd.Flags().Changed("wait"), cmd.Flags().Changed("observe")
			if err := f.observation(cmd); err != nil {
				return err
			}
			if f.observes {
				return a.observe(cmd.Context(), f, args)
			}
			return a.meter(cmd.Context(), f, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.labels.Job, "job", "", "label the charges with a `JOB`, whose settings apply; a refusal for good then ends the command")
	flags.StringVar(&f.labels.Region, "region", "", "label the charges with a `REGION`")
	flags.StringSliceVar(&f.budgets, "budget", nil, "charge calls to the upstream of `BUDGET` to it; one for each upstream (else $QUOTACTL_BUDGET, else the job's)")
	spanVar(flags, &f.wait, "wait", 0, "longest `SPAN` that a call waits for its units (else the job's max_wait, else 4s)")
	flags.StringVar(&f.onRefusal, "on-refusal", "", "`DO` after a refusal for good: stop the command, or continue (else stop with --job)")
	flags.BoolVar(&f.keepExit, "keep-exit", false, "exit with the command's code, whatever was refused")
	flags.StringSliceVar(&f.tunnels, "tunnel", nil, "let calls to `HOST` pass unmetered")
	spanVar(flags, &f.linger, "linger", defaultLinger, "wait up to `SPAN` for what the command has left running")
	flags.BoolVar(&f.java, "java", false, "meter programs in Java, too")
	flags.BoolVar(&f.noHooks, "no-hooks", false, "add no hooks to Python and Node")
	flags.StringSliceVar(&f.hosts, "observe", nil, "charge nothing, and say what the command calls at `HOSTS`: names, or '*' for all")
	flags.Lookup("observe").NoOptDefVal = ofPresets
	flags.StringVar(&f.draft, "draft", "", "write what --observe sees as a configuration to a new `FILE`")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "say nothing at the end if all calls went well")
	return cmd
}

func meterArguments(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case dash < 0:
		return usage("-- is missing before the command; write %s", cmd.UseLine())
	case dash != 0 && cmd.Flags().Changed("observe"):
		return usage("%s before --; the hosts of --observe follow an equals sign: --observe=%s", view.Plural(dash, "argument"), strings.Join(args[:dash], ","))
	case dash != 0:
		return usage("%s before --; write %s", view.Plural(dash, "argument"), cmd.UseLine())
	case len(args) == 0 || args[0] == "":
		return usage("the command after -- is missing; write %s", cmd.UseLine())
	}
	return nil
}

// meter runs a command behind a gateway.
func (a *app) meter(ctx context.Context, f meterFlags, command []string) error {
	cfg, list, err := checked(config.ParseFor(a.configPath, f.labels.Job))
	if err != nil {
		return err
	}
	digest := gateway.Digest(a.configPath, a.storeAt(cfg))
	if outer, found := gateway.AskOuter(ctx, a.env, ""); found && outer.Config == digest {
		return a.meterWithin(outer, f, command)
	}
	if err := a.completeMeter(&f, cfg, list); err != nil {
		return err
	}
	store, err := a.openStore(ctx, cfg)
	if err != nil {
		return err
	}
	m := &metering{app: a, flags: f, cfg: cfg, store: store, command: command}
	for _, j := range list {
		if j.Name == f.labels.Job {
			m.job = j
		}
	}
	return errors.Join(m.run(context.WithoutCancel(ctx)), store.Close())
}

// meterWithin runs a command in one that is metered already.
func (a *app) meterWithin(outer gateway.Outer, f meterFlags, command []string) error {
	if f.labels.Job != "" && f.labels.Job != outer.Job {
		around := "without a job"
		if outer.Job != "" {
			around = "for job " + outer.Job
		}
		return usage("--job %s: this runs in a command of quotactl meter, which charges its calls %s: take one of the two out", f.labels.Job, around)
	}
	if len(f.budgets)+len(f.tunnels) > 0 || f.labels.Region != "" || f.waits || f.onRefusal != "" {
		return usage("this runs in a command of quotactl meter, which decides with its own flags: give --budget, --region, --wait, --on-refusal and --tunnel to that one")
	}
	path, err := exec.LookPath(command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) { // which a shell runs, too
		return notStarted(command[0], err)
	}
	return notStarted(command[0], proc.Become(path, command))
}

// completeMeter checks the flags, and adds what the environment and the job say.
func (a *app) completeMeter(f *meterFlags, cfg *config.Config, list []*jobs.Job) error {
	if f.wait < 0 || f.linger < 0 {
		return usage("a span below 0: use 0 or more")
	}
	if f.onRefusal == "" && f.labels.Job != "" {
		f.onRefusal = stopOnRefusal
	}
	if f.onRefusal != "" && f.onRefusal != stopOnRefusal && f.onRefusal != continueOnRefusal {
		return usage("--on-refusal %q: use stop or continue", f.onRefusal)
	}
	if err := (budget.Call{Operation: budgethttp.Unmatched, Labels: f.labels}).Validate(0); err != nil {
		return err
	}
	a.warnOfJob(cfg, f.labels.Job)
	if named, _ := a.env("QUOTACTL_BUDGET"); len(f.budgets) == 0 && named != "" {
		f.budgets = strings.Split(named, ",")
	}
	if len(f.budgets) == 0 {
		for _, j := range list {
			if j.Name == f.labels.Job {
				f.budgets = []string{j.Budget}
			}
		}
	}
	for i, name := range f.budgets {
		if _, _, err := cfg.Find(name); err != nil {
			return err
		}
		upstream, _, _ := strings.Cut(name, "/")
		if slices.ContainsFunc(f.budgets[:i], func(other string) bool { return strings.HasPrefix(other, upstream+"/") }) {
			return usage("--budget names two budgets of %s: give one for each upstream", upstream)
		}
	}
	return nil
}

// say writes a line about the command to standard error.
func (a *app) say(text string) {
	_, _ = fmt.Fprintf(a.stderr, "quotactl: %s\n", text) // if it cannot be written, the exit code speaks
}

// exit is the exit code, as an error; nil: the command has succeeded.
func (f *meterFlags) exit(code int, t gateway.Tally) error {
	switch {
	case f.keepExit:
	case t.Exhausted != nil:
		code = exitExhausted
	case t.StoreAway > 0 && code != 0:
		code = exitUnavailable
	case len(t.Misconfigured) > 0:
		code = exitUsage
	}
	if code == 0 {
		return nil
	}
	return &exitError{code: code}
}
