package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/gateway"
	"github.com/quotactl/quotactl/internal/view"
)

// The bounds of charge's --timeout, those of [store] timeout.
const (
	minTimeout = time.Millisecond
	maxTimeout = time.Minute
)

const chargeLong = `Charge one call before it is made. Exit code 0: it is charged, make the call.
75: it does not fit now; standard error says when it will. 69: the store did not
answer; send the same --id again to learn whether it was charged.

--reserve charges a call whose cost is known only afterwards. Then settle it
with the actual cost, report the API's response (quotactl feedback), or release
it, by the id that --print-id prints. --wait waits until the call fits, and is
refused at once if that takes too long even if all open reservations end now.
--dry-run only says whether the call fits.

Without --id a new id is made. Give an id only to send the same call again: if
the id was probably used for another call, a warning says so.

If the charge's job has a floor, on_store_error or max_wait in the
configuration, they apply unless --floor, --on-store-error or --wait is given; a
value of 0 counts as given.

In a command job, the labels are those of the run; once its pass has ended, job
and region alone. When another daemon considers the pass dead, nothing more is
charged for it (exit code 1).`

// chargeFlags are the flags of charge.
type chargeFlags struct {
	call         budget.Call
	run          budget.Run // completes the call
	units        int64
	onStoreError string
	timeout      time.Duration
	wait         time.Duration
	waits        bool // wait was given, 0 too; else the job says it
	reserve      time.Duration
	dryRun       bool
	json         bool
	printID      bool
}

// check finds wrong usage of the flags.
func (f *chargeFlags) check(changed func(string) bool) error {
	switch p := budget.Policy(f.onStoreError); {
	case changed("timeout") && (f.timeout < minTimeout || f.timeout > maxTimeout):
		return usage("--timeout %s: use %s to %s", f.timeout, minTimeout, maxTimeout)
	case p != "" && p != budget.Open && p != budget.Closed:
		return usage("--on-store-error %q: use open or closed", p)
	case f.printID && (f.json || f.dryRun):
		return usage("--print-id cannot be used with --json, which has the id, or with --dry-run, which charges nothing")
	case changed("id") && f.call.ID == "":
		return usage("--id is empty: give 1 to 128 printable ASCII characters, or leave it out for a new one")
	case changed("reserve") && (f.reserve < time.Second || f.reserve > budget.MaxLease):
		return usage("--reserve %s: use 1s to %s", f.reserve, limit.SpanText(budget.MaxLease))
	case f.wait < 0:
		return usage("--wait %s: use 0 or more", f.wait)
	case f.wait > 0 && f.dryRun:
		return usage("--wait and --dry-run cannot be used together: a dry run does not wait")
	}
	return nil
}

func newChargeCommand(a *app) *cobra.Command {
	var f chargeFlags
	cmd := &cobra.Command{
		Use:   "charge BUDGET OPERATION",
		Short: "Charge one call before a script makes it",
		Long:  chargeLong,
		Example: `  quotactl charge youtube/key1 search.list && ./one-search.sh
  quotactl charge youtube/key1 videos.list --floor 500 --json
  quotactl charge youtube/key1 search.list --wait 2m
  id=$(quotactl charge youtube/key1 search.list --reserve 5m --print-id)`,
		ValidArgsFunction: a.completeCall,
		Args:              arguments(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.complete(&f, cmd.Flags().Changed, args[1]); err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			return a.charge(ctx, args[0], f)
		},
	}
	flags := cmd.Flags()
	f.add(flags)
	flags.StringVar(&f.call.ID, "id", "", "`ID` of the charge; the same id again is charged once (else a new one)")
	spanVar(flags, &f.reserve, "reserve", 0, "reserve the units for `LEASE`, to be settled or released")
	flags.BoolVar(&f.dryRun, "dry-run", false, "charge nothing; say whether the call fits now")
	flags.BoolVar(&f.printID, "print-id", false, "print only the charge's id")
	a.sandboxFlag(cmd)
	flags.BoolVar(&f.json, "json", false, "answer in JSON, also when refused")
	return cmd
}

// add defines the flags that every command which charges a call has.
func (f *chargeFlags) add(flags *pflag.FlagSet) {
	flags.Int64Var(&f.units, "units", 0, "charge `N` units, 0 to 10^15 (else the operation's price)")
	flags.Int64Var(&f.call.Floor, "floor", 0, "`UNITS` that must remain after the call (else the job's floor)")
	flags.BoolVar(&f.call.UseHeadroom, "use-headroom", false, "allow the call to spend the headroom")
	flags.StringVar(&f.call.Labels.Job, "job", "", "label the charge with a `JOB`")
	flags.Int64Var(&f.call.Fence, "fence", 0, "`NUMBER` of the job's pass, as the daemon gives it")
	flags.StringVar(&f.call.Labels.Region, "region", "", "label the charge with a `REGION`")
	flags.StringVar(&f.call.Labels.Run, "run", "", "label the charge with a `RUN`")
	spanVar(flags, &f.wait, "wait", 0, "wait up to `SPAN` until the call fits (else the job's max_wait)")
	flags.StringVar(&f.onStoreError, "on-store-error", "", "`POLICY` while the store is out of reach: open or closed (else as configured)")
	spanVar(flags, &f.timeout, "timeout", 0, "longest `SPAN` for the store's decision (else as configured)")
}

// complete makes the call of the flags and of the run that the program is called in.
func (a *app) complete(f *chargeFlags, changed func(string) bool, operation string) error {
	if changed("units") {
		f.call.Units = &f.units
	}
	if err := f.check(changed); err != nil {
		return err
	}
	if err := a.labelsOfRun(changed, f); err != nil {
		return err
	}
	if f.waits = changed("wait"); changed("floor") && f.call.Floor == 0 {
		f.call.Floor = budget.NoFloor
	}
	f.call.Operation = operation
	f.call.OnStoreError = budget.Policy(f.onStoreError)
	return nil
}

// charge charges one call and writes the answer. With --json a refusal is an answer
// too; its error still goes to stderr and sets the exit code.
func (a *app) charge(ctx context.Context, name string, f chargeFlags) error {
	cfg, spec, err := a.chargeConfig(name, f)
	if err != nil {
		return err
	}
	if f.call.ID == "" {
		f.call.ID, f.call.NewID = rand.Text(), true // known to the answer, whatever becomes of the charge
	}
	receipt, err := a.chargeOnce(ctx, cfg, name, f)
	if receipt.Warning != "" {
		// A stderr that cannot be written leaves the answer to speak.
		_, _ = fmt.Fprintf(a.stderr, "quotactl: warning: %s\n", receipt.Warning)
	}
	switch {
	case f.json:
		return errors.Join(err, writeJSON(a.stdout, answer.NewCharge(&spec, answer.Asked{Call: f.call, Lease: f.reserve, DryRun: f.dryRun}, receipt, err)))
	case err != nil:
		return err
	case f.printID:
		if _, err := fmt.Fprintln(a.stdout, receipt.ID); err != nil {
			return fmt.Errorf("write the id: %w", err)
		}
		return nil
	}
	return writeText(a.stdout, view.Receipt(a.screen(), receipt, f.reserve, f.dryRun))
}

// chargeConfig reads the configuration, and what it says of a budget.
func (a *app) chargeConfig(name string, f chargeFlags) (*config.Config, budget.Spec, error) {
	cfg, _, err := checked(config.ParseFor(a.configPath, f.call.Labels.Job))
	if err != nil {
		return nil, budget.Spec{}, err
	}
	if f.timeout > 0 {
		cfg.Store.Timeout = f.timeout
	}
	spec, err := cfg.Spec(name)
	if err == nil {
		a.warnOfJob(cfg, f.call.Labels.Job)
	}
	return cfg, spec, err
}

// warnOfJob warns of a job that is probably mistyped.
func (a *app) warnOfJob(cfg *config.Config, job string) {
	if warning := cfg.MistypedJob(job); warning != "" {
		_, _ = fmt.Fprintf(a.stderr, "quotactl: warning: %s\n", warning) // as that of a receipt
	}
}

// chargeOnce opens the store for a single charge.
func (a *app) chargeOnce(ctx context.Context, cfg *config.Config, name string, f chargeFlags) (budget.Receipt, error) {
	upstream, _, _ := strings.Cut(name, "/")
	if outer, _ := gateway.AskOuter(ctx, a.env, upstream); outer.First {
		a.say(fmt.Sprintf("warning: this runs under quotactl meter, which charges calls to %s, too: take out one of the two", upstream))
	}
	store, err := a.openStore(ctx, cfg)
	if err != nil {
		return budget.Receipt{}, err
	}
	b, err := a.budget(cfg, store, name)
	if err != nil {
		return budget.Receipt{}, errors.Join(err, store.Close())
	}
	said := a.waitingFor(ctx, b, f.call, f.reserve)
	receipt, err := f.charge(ctx, b.InRun(f.run))
	said()
	return receipt, errors.Join(err, b.Close(), store.Close())
}

// charge does what the flags say.
func (f *chargeFlags) charge(ctx context.Context, b *budget.Budget) (budget.Receipt, error) {
	if f.dryRun {
		return b.Would(ctx, f.call, f.reserve)
	}
	spec, job := b.Spec(), f.call.Labels.Job
	if f.waits { // as if its job said so: this bounds the wait for units, not the store's answers
		says := spec.Jobs[job]
		says.MaxWait = &f.wait
		b = b.ForJob(job, says)
		spec = b.Spec()
	}
	_, waits := spec.MaxWait(f.call.Labels) // and for so long does Wait wait
	charge, reserve := b.Charge, b.Reserve
	if waits {
		charge, reserve = b.Wait, b.WaitReserve
	}
	if f.reserve == 0 {
		return charge(ctx, f.call)
	}
	reserved, err := reserve(ctx, f.call, f.reserve)
	if err != nil {
		return budget.Receipt{}, err
	}
	return reserved.Receipt, nil
}

// labelsOfRun notes the run that the program is called in, without what flags say instead.
// The call gets its job, which the configuration is read for.
func (a *app) labelsOfRun(changed func(string) bool, f *chargeFlags) error {
	run, err := budget.RunFrom(a.env)
	labels := &f.call.Labels
	switch {
	case !changed("job"):
		labels.Job = run.Labels.Job
	case labels.Job != run.Labels.Job:
		run.Labels.Job, run.Fence, err = "", 0, nil
	}
	if changed("region") {
		run.Labels.Region = ""
	}
	if changed("run") {
		run.Labels.Run = ""
	}
	if changed("fence") { // the call itself says its pass
		run.Fence, err = 0, nil
		run.Complete(&f.call)
	}
	f.run = run
	return err
}
