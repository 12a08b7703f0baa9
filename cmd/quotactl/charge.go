package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
)

// The bounds of charge's --timeout, those of [store] timeout.
const (
	minTimeout = time.Millisecond
	maxTimeout = time.Minute
)

const chargeLong = `Charge one call to a budget before it is made. Exit code 0: it was charged, make
the call. 75: its units do not fit now. 69: the store did not answer; send the
same --id again to know whether it was charged.

With --reserve the units are kept open for a while: settle them with what the
call cost, hand the upstream's response over (quotactl feedback), or release
them, all by the charge's id, which --print-id prints alone. With --wait it is
charged as soon as it fits, or refused at once when that is too late; beside
open reservations only when it is too late even if they are finished now, as
they may be. With --dry-run it is only decided and not charged.

Without --id a new id is made. Only the same call sent again takes the id of
before: where an id was most likely used for another call, a warning says so.

What the configuration says of the charge's job (floor, on_store_error,
max_wait) holds, unless --floor, --on-store-error or --wait says otherwise; 0
is said too.

Within a command job the labels are those of the run, and the number of its pass
goes with them: once another daemon has taken the pass for dead, nothing more is
charged for it (exit code 1).`

// chargeFlags are the flags of charge.
type chargeFlags struct {
	call         budget.Call
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
		return usage("--print-id goes without --json, which has the id, and without --dry-run, which charges nothing")
	case changed("id") && f.call.ID == "":
		return usage("--id is empty: give 1 to 128 printable ASCII characters, or leave it out for a new one")
	case changed("reserve") && (f.reserve < time.Second || f.reserve > budget.MaxLease):
		return usage("--reserve %s: use 1s to %s", f.reserve, limit.SpanText(budget.MaxLease))
	case f.wait < 0:
		return usage("--wait %s: use 0 or more", f.wait)
	case f.wait > 0 && f.dryRun:
		return usage("--wait and --dry-run are both given: what is only looked at needs no wait")
	}
	return nil
}

func newChargeCommand(a *app) *cobra.Command {
	var f chargeFlags
	cmd := &cobra.Command{
		Use:   "charge BUDGET OPERATION",
		Short: "Charge one call, for a script",
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
	flags.StringVar(&f.call.ID, "id", "", "`ID` of the charge: sent twice, it is charged once (else a new one)")
	spanVar(flags, &f.reserve, "reserve", 0, "keep the units open for `LEASE`, to settle or release")
	flags.BoolVar(&f.dryRun, "dry-run", false, "charge nothing, tell whether it would fit now")
	flags.BoolVar(&f.printID, "print-id", false, "print the charge's id and nothing else")
	flags.BoolVar(&f.json, "json", false, "answer in JSON, a refusal too")
	return cmd
}

// add defines the flags that every command which charges a call has.
func (f *chargeFlags) add(flags *pflag.FlagSet) {
	flags.Int64Var(&f.units, "units", 0, "units the call costs, `N` from 0 to 10^15 (else its price)")
	flags.Int64Var(&f.call.Floor, "floor", 0, "`UNITS` that must remain after the call (else what its job says)")
	flags.BoolVar(&f.call.UseHeadroom, "use-headroom", false, "let the call spend what is kept back")
	flags.StringVar(&f.call.Labels.Job, "job", "", "`JOB` that spends, a label")
	flags.Int64Var(&f.call.Fence, "fence", 0, "`NUMBER` of the daemon's pass that spends, of the job")
	flags.StringVar(&f.call.Labels.Region, "region", "", "`REGION` that spends, a label")
	flags.StringVar(&f.call.Labels.Run, "run", "", "`RUN` that spends, a label")
	spanVar(flags, &f.wait, "wait", 0, "wait up to `SPAN` until it fits (else what its job says)")
	flags.StringVar(&f.onStoreError, "on-store-error", "", "`POLICY` when the store is out of reach: open or closed (else as configured)")
	spanVar(flags, &f.timeout, "timeout", 0, "`SPAN` the store has to decide (else the configuration's)")
}

// complete makes the call of the flags and of the run that the program is called in.
func (a *app) complete(f *chargeFlags, changed func(string) bool, operation string) error {
	if changed("units") {
		f.call.Units = &f.units
	}
	if err := f.check(changed); err != nil {
		return err
	}
	if err := a.labelsOfRun(changed, &f.call); err != nil {
		return err
	}
	if f.waits = changed("wait"); changed("floor") && f.call.Floor == 0 {
		f.call.Floor = budget.NoFloor
	}
	f.call.Operation = operation
	f.call.OnStoreError = budget.Policy(f.onStoreError)
	return nil
}

// charge charges one call and writes the answer. With --json a refusal is an
// answer too; its error still goes to stderr and tells the exit code.
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
	return a.writeReceipt(receipt, f)
}

// chargeConfig reads the configuration, and what it says of a budget.
func (a *app) chargeConfig(name string, f chargeFlags) (*config.Config, budget.Spec, error) {
	cfg, _, err := a.loadConfig()
	if err != nil {
		return nil, budget.Spec{}, err
	}
	if f.timeout > 0 {
		cfg.Store.Timeout = f.timeout
	}
	spec, err := cfg.Spec(name)
	return cfg, spec, err
}

// chargeOnce opens the store for a single charge.
func (a *app) chargeOnce(ctx context.Context, cfg *config.Config, name string, f chargeFlags) (budget.Receipt, error) {
	store, err := a.openStore(ctx, cfg)
	if err != nil {
		return budget.Receipt{}, err
	}
	b, err := a.budget(cfg, store, name)
	if err != nil {
		return budget.Receipt{}, errors.Join(err, store.Close())
	}
	receipt, err := f.charge(ctx, b)
	return receipt, errors.Join(err, store.Close())
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

// labelsOfRun completes the labels by those of the run that the program is
// called in, and with its own job the number of its pass.
func (a *app) labelsOfRun(changed func(string) bool, call *budget.Call) error {
	labels := &call.Labels
	for _, l := range []struct {
		flag, variable string
		label          *string
	}{{"job", "QUOTACTL_JOB", &labels.Job}, {"region", "QUOTACTL_REGION", &labels.Region}, {"run", "QUOTACTL_RUN", &labels.Run}} {
		if value, ok := a.env(l.variable); ok && !changed(l.flag) {
			*l.label = value
		}
	}
	number, ok := a.env("QUOTACTL_FENCE")
	if job, _ := a.env("QUOTACTL_JOB"); !ok || changed("fence") || job != labels.Job {
		return nil
	}
	var err error
	if call.Fence, err = strconv.ParseInt(number, 10, 64); err != nil {
		return usage("the environment's QUOTACTL_FENCE is no number: it is the daemon's, leave it as it is")
	}
	return nil
}

func (a *app) writeReceipt(r budget.Receipt, f chargeFlags) error {
	charged := plural(int(r.Units), "unit")
	if f.dryRun {
		charged = "none; " + number(r.Units) + " would fit"
	}
	if f.reserve > 0 && !f.dryRun && !r.Replayed {
		charged += " until " + showTime(r.At.Add(f.reserve))
	}
	switch {
	case r.Replayed && r.Ended != "":
		charged += ", charged before under this id, and " + string(r.Ended)
	case r.Replayed:
		charged += ", charged before under this id"
	}
	if r.Source == budget.SourceAllowance {
		charged += ", by this host's allowance"
	}
	t := newTable("BUDGET", "OPERATION", "CHARGED", ">LEFT", "IN LIMIT", "ID")
	t.add(r.Budget, r.Operation, charged, number(r.Remaining), r.Limit, r.ID)
	return t.write(a.stdout)
}
