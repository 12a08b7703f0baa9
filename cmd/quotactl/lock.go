package main

import (
	"context"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/view"
)

// lockAnswer is the JSON answer of lock and unlock.
type lockAnswer struct {
	Budget string          `json:"budget"`
	Limit  answer.Text     `json:"limit_name"` // null for the whole budget
	Locked bool            `json:"locked"`
	Until  *answer.Instant `json:"locked_until"`
	Why    string          `json:"locked_why,omitempty"`
	// Stood: unlock found a lock.
	Stood *bool `json:"stood,omitempty"`
}

// signed is a reason with the person and the machine that locks.
func signed(why string) string {
	by := "set by hand"
	if me, err := user.Current(); err == nil {
		by = "set by " + me.Username
	}
	if host, err := os.Hostname(); err == nil {
		by += " on " + host
	}
	if why == "" {
		return by
	}
	return why + "; " + by
}

func newLockCommand(a *app) *cobra.Command {
	var named, until, why string
	var span time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "lock BUDGET (--until TIME | --for SPAN)",
		Short: "Close a budget, or one limit, until an instant",
		Long: `Refuse all calls of a budget, or all calls that one of its limits covers, until
an instant, on every machine. It replaces an existing lock, such as one from the
upstream's response. Open reservations can still be settled. A limit on
concurrent calls covers reservations alone. quotactl status shows the lock, and
unlock ends it.`,
		Example: `  quotactl lock shop/main --for 2h --why "quota increase pending"
  quotactl lock youtube/key1 --limit search --until 2026-06-11T07:00:00Z`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeBudget,
		RunE: func(cmd *cobra.Command, args []string) error {
			order := budget.LockOrder{Limit: named, Why: signed(why), ByHand: true}
			switch changed := cmd.Flags().Changed; {
			case changed("until") == changed("for"):
				return usage("give either --until TIME or --for SPAN")
			case changed("for") && (span < time.Second || span.Microseconds() > driver.MaxLock):
				return usage("--for %s: use 1s to %s", span, limit.SpanText(time.Duration(driver.MaxLock)*time.Microsecond))
			case changed("for"):
				order.Until.After = span
			default:
				at, err := time.Parse(time.RFC3339, until)
				if err != nil {
					return usage("--until %q: write an instant as 2026-06-11T07:00:00Z", until)
				}
				order.Until.At = at
			}
			var lock budget.Lock
			err := a.onBudget(cmd.Context(), args[0], func(ctx context.Context, b *budget.Budget) (err error) {
				lock, err = b.Lock(ctx, order)
				return err
			})
			end := answer.Instant(lock.Until)
			return a.answerLock(err, lockAnswer{Budget: args[0], Limit: answer.Text(named), Locked: true, Until: &end, Why: lock.Why}, view.Lock(a.screen(), lock), asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&named, "limit", "", "lock only `LIMIT`, as status names it (else the whole budget)")
	flags.StringVar(&until, "until", "", "lock until `TIME`, as 2026-06-11T07:00:00Z")
	spanVar(flags, &span, "for", 0, "lock for `SPAN`")
	flags.StringVar(&why, "why", "", "`TEXT` that every refusal shows; no secrets")
	a.sandboxFlag(cmd)
	flags.BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

func newUnlockCommand(a *app) *cobra.Command {
	var limit string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "unlock BUDGET",
		Short: "Open a locked budget or limit",
		Long: `End the lock of a budget, or of one of its limits. Without a lock nothing
happens. If the upstream still refuses, its next response locks again.`,
		Example: `  quotactl unlock shop/main
  quotactl unlock youtube/key1 --limit search`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeBudget,
		RunE: func(cmd *cobra.Command, args []string) error {
			var stood bool
			did := "unlocked"
			err := a.onBudget(cmd.Context(), args[0], func(ctx context.Context, b *budget.Budget) (err error) {
				if stood, err = b.Unlock(ctx, limit); err != nil || stood {
					return err
				}
				did, err = stillLocked(ctx, b, limit)
				return err
			})
			return a.answerLock(err, lockAnswer{Budget: args[0], Limit: answer.Text(limit), Stood: &stood}, did, asJSON)
		},
	}
	cmd.Flags().StringVar(&limit, "limit", "", "unlock only `LIMIT`, as status names it (else the whole budget)")
	a.sandboxFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	return cmd
}

// stillLocked says that there was no lock, and which of a whole budget's limits have one.
func stillLocked(ctx context.Context, b *budget.Budget, limit string) (string, error) {
	const none = "there was no lock"
	if limit != "" {
		return none, nil
	}
	status, err := b.Status(ctx)
	if err != nil {
		return "", err
	}
	var locked []string
	for _, lock := range status.Locks {
		if lock.Limit != "" {
			locked = append(locked, lock.Limit)
		}
	}
	if len(locked) == 0 {
		return none, nil
	}
	return none + " on the whole budget; locked by themselves: " + strings.Join(locked, ", ") + " (unlock each with --limit)", nil
}

// answerLock says what became of a lock.
func (a *app) answerLock(err error, answer lockAnswer, did string, asJSON bool) error {
	switch {
	case err != nil:
		return err
	case asJSON:
		return writeJSON(a.stdout, answer)
	}
	name := string(answer.Limit)
	if name == "" {
		name = "all"
	}
	t := a.screen().Table("BUDGET", "LIMIT", "DONE")
	t.Add(answer.Budget, name, did)
	return t.Write(a.stdout)
}
