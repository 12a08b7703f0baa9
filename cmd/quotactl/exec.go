package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/proc"
	"github.com/quotactl/quotactl/internal/view"
)

// The exit codes of a command that was not started, those of shells and env.
const (
	exitNotRunnable = 126
	exitNotFound    = 127
)

// startLease is how long a charge stays open where --reserve says nothing: from when
// the call is charged until the command has started and makes it.
const startLease = 10 * time.Second

const execLong = `Charge one call, then run the command that makes it. The command replaces
quotactl: it has its process, terminal, input, output and signals, and its exit
code is the exit code. quotactl writes nothing to standard output.

Until the command starts, the exit codes are those of charge: 75 if the call
does not fit (with --wait: not in time), 69 if the store did not answer, 2 for
wrong usage; also 127 if the command was not found and 126 if it could not be
started, and then nothing is charged. A reason on standard error tells these
apart from the command's own exit codes.

The charge always has a new id. It counts as open for 10 seconds, or as
--reserve says, and as made after that. Use a longer lease if the command may
make its call later, and for a concurrent limit, which counts the command while
it is open.

Labels and the keys of the job's configuration work as with charge.`

func newExecCommand(a *app) *cobra.Command {
	f := chargeFlags{reserve: startLease}
	cmd := &cobra.Command{
		Use:   "exec BUDGET OPERATION [flags] -- COMMAND [ARG...]",
		Short: "Charge one call and run the command that makes it",
		Long:  execLong,
		Example: `  quotactl exec youtube/key1 search.list -- ./one-search.sh cats
  quotactl exec youtube/key1 videos.list --wait 2m -- curl -sS "$url"
  quotactl exec shop/main export --reserve 1h -- nice ./export.sh`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     a.completeExec,
		Args:                  execArguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.complete(&f, cmd.Flags().Changed, args[1]); err != nil {
				return err
			}
			return a.exec(cmd.Context(), args[0], f, args[2:])
		},
	}
	f.add(cmd.Flags())
	a.sandboxFlag(cmd)
	spanVar(cmd.Flags(), &f.reserve, "reserve", startLease, "the call may take `LEASE`")
	return cmd
}

// execArguments checks the arguments: quotactl's two before a "--", and the command's,
// one or more, after it.
func execArguments(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case dash < 0:
		return usage("-- is missing before the command; write %s", cmd.UseLine())
	case dash != 2:
		return usage("%s before --, not 2; write %s", view.Plural(dash, "argument"), cmd.UseLine())
	case len(args) == 2 || args[2] == "":
		return usage("the command after -- is missing; write %s", cmd.UseLine())
	}
	return nil
}

// completeExec completes a budget, its operation, and then files.
func (a *app) completeExec(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return a.completeCall(cmd, args, typed)
}

// exec charges a call and becomes the command. It returns only if the command was not
// started. It checks the command before it charges, and releases the charge if the
// start fails after all.
func (a *app) exec(ctx context.Context, name string, f chargeFlags, command []string) error {
	cfg, _, err := a.chargeConfig(name, f)
	if err != nil {
		return err
	}
	path, err := exec.LookPath(command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) { // which a shell runs, too
		return notStarted(command[0], err)
	}
	f.call.ID, f.call.NewID = rand.Text(), true
	var receipt budget.Receipt
	ended, err := proc.Interruptibly(ctx, func(ctx context.Context) (err error) {
		receipt, err = a.chargeOnce(ctx, cfg, name, f)
		return err
	})
	if err != nil && receipt.ID == "" {
		return withoutID(err)
	}
	if err = cmp.Or(err, ended); err == nil { // else the store was not closed, or a signal came
		err = notStarted(command[0], proc.Become(path, command))
	}
	if receipt.Source == budget.SourceNone {
		return err
	}
	released := a.onBudget(context.WithoutCancel(ctx), name, func(ctx context.Context, b *budget.Budget) error {
		return b.Release(ctx, receipt.ID)
	})
	if released != nil {
		released = fmt.Errorf("the command was not started, but its units are still charged: %w", released)
	}
	return errors.Join(err, released)
}

// notStarted says why a command does not run, with its exit code. Its arguments are not
// shown: they may hold a secret.
func notStarted(command string, err error) error {
	code := exitNotRunnable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		code = exitNotFound
	}
	var lookedFor *exec.Error
	if errors.As(err, &lookedFor) {
		err = lookedFor.Err // without its name again
	}
	return &exitError{code: code, err: fmt.Errorf("start %s: %w", command, err)}
}

// withoutID is a refusal without its advice to send the id again, since the caller does
// not have the id.
func withoutID(err error) error {
	var refused *budget.RefusedError
	if !errors.As(err, &refused) || refused.NotCharged {
		return err
	}
	refused.ID = ""
	return fmt.Errorf("%w; the command was not started; if the charge reached the store, its units count", err)
}
