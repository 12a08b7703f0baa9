package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/budgethttp"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/httpfile"
	"github.com/quotactl/quotactl/internal/view"
)

const feedbackLong = `Report an API response to a call that was charged with --reserve. The refusal
and report tables of the configuration say what it means: quotactl locks what
the response says is spent, compares what it says is left, and settles the
reservation with what the call cost, or releases it if the upstream does not
count it.

The response is what curl -i writes. Reporting it again, as after exit code 69,
changes nothing more, but a lock for a span of time counts from then. Exit code
75: the upstream said that the quota is spent. Standard error and the JSON name
values that cannot be read, and a lock that was cut: the answer says to what.

If the store no longer has the reservation, a refusal still locks, and a warning
says that the call's cost is not recorded ("held" is false in the JSON). Any
other response then fails with exit code 1.

--keep leaves the reservation open, to be settled later: for one of several
calls that were reserved together.`

// feedbackFlags are the flags of feedback.
type feedbackFlags struct {
	call  budget.Call
	units int64
	file  string
	keep  bool
	json  bool
}

func newFeedbackCommand(a *app) *cobra.Command {
	var f feedbackFlags
	cmd := &cobra.Command{
		Use:   "feedback BUDGET OPERATION",
		Short: "Report an API response: settle the reservation, apply locks",
		Long:  feedbackLong,
		Example: `  id=$(quotactl charge github/user1 rest.read --reserve 5m --print-id) &&
    curl -i -o answer.http https://api.github.com/user &&
    quotactl feedback github/user1 rest.read --id "$id" --response answer.http`,
		ValidArgsFunction: a.completeCall,
		Args:              arguments(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.call.Operation = args[1]
			if cmd.Flags().Changed("units") {
				f.call.Units = &f.units
			}
			if f.call.ID == "" {
				return usage("--id is missing: give the id of the charge, which was made with --reserve")
			}
			return a.feedback(cmd.Context(), args[0], f, cmd.InOrStdin())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.call.ID, "id", "", "`ID` of the charge, made with --reserve")
	flags.Int64Var(&f.units, "units", 0, "the units `N` that charge was given (else the price)")
	flags.StringVar(&f.file, "response", "", "read the response from `FILE` (else standard input)")
	flags.BoolVar(&f.keep, "keep", false, "leave the reservation open")
	a.sandboxFlag(cmd)
	flags.BoolVar(&f.json, "json", false, "answer in JSON")
	return cmd
}

// feedback takes in a response and says what became of it.
func (a *app) feedback(ctx context.Context, name string, f feedbackFlags, stdin io.Reader) error {
	resp, body, err := f.read(stdin)
	if err != nil {
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	var done budgethttp.Outcome
	held := true
	err = a.onBudget(ctx, name, func(ctx context.Context, b *budget.Budget) error {
		done, held, err = f.takeIn(ctx, b, resp, body)
		return err
	})
	if err != nil {
		return err
	}
	for _, u := range done.Unread {
		a.logger().Warn("part of the response could not be read", "budget", name, "operation", u.Operation, "id", f.call.ID,
			"what", string(u.What), "rule", u.Rule, "place", cmp.Or(u.Place, "body"), "why", u.Why)
	}
	if v := done.Refused; v != nil && !v.Asked.IsZero() {
		a.logger().Warn("the upstream refused a request for longer than its rule locks; give the rule a longest",
			"budget", name, "operation", f.call.Operation, "id", f.call.ID, "rule", v.Rule, "limit", v.Limit, "until", v.Until, "asked_until", v.Asked)
	}
	if !held {
		a.logger().Warn("the store no longer has the reservation, so the cost of the call is not recorded; if the store has not lost data, check --id",
			"budget", name, "operation", f.call.Operation, "id", f.call.ID)
	}
	said := answer.NewFeedback(name, f.call, f.keep, held, resp.StatusCode, done)
	if f.json {
		err = writeJSON(a.stdout, said)
	} else {
		err = writeText(a.stdout, view.Feedback(a.screen(), said))
	}
	if v := done.Refused; v != nil && v.Means == feedback.Exhausted {
		return errors.Join(&exitError{code: exitExhausted, err: fmt.Errorf("%s: the upstream says that the quota is spent (refusal %s); locked %s", name, v.Rule, view.Locked(a.screen(), v.Limit, v.Until))}, err)
	}
	return err
}

// takeIn does what the response says. held is false where the store does not hold the
// reservation any more: a refusal is taken in all the same, anything else is an error.
func (f *feedbackFlags) takeIn(ctx context.Context, b *budget.Budget, resp *http.Response, body []byte) (done budgethttp.Outcome, held bool, err error) {
	receipt, held, lost := heldReservation(ctx, b, f.call)
	switch {
	case errors.Is(lost, budget.ErrUnavailable):
		resp.Body = io.NopCloser(bytes.NewReader(body))
		return done, held, f.takeInAway(ctx, b, resp, lost)
	case lost != nil && !errors.Is(lost, budget.ErrConflict):
		return done, held, lost
	case held:
		apply := budgethttp.Apply
		if f.keep {
			apply = budgethttp.ApplyOpen
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
		// An earlier try that did not find the reservation has released the id: a conflict.
		done, lost = apply(ctx, b, receipt, resp)
		if !errors.Is(lost, budget.ErrExpired) && !errors.Is(lost, budget.ErrConflict) {
			return done, held, lost
		}
	default:
		lost = cmp.Or(lost, noReservation(b.Name(), f.call.ID, budget.ErrExpired, "there is none with this id, or it is no longer held"))
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	done, err = budgethttp.ApplyRefusal(ctx, b, f.call.Operation, resp)
	if err == nil && done.Refused == nil {
		err = lost
	}
	return done, false, err
}

// takeInAway locks what the response says is spent for this host alone, and says what is left to do.
// lost is why the store could not be asked for the reservation.
func (f *feedbackFlags) takeInAway(ctx context.Context, b *budget.Budget, resp *http.Response, lost error) error {
	var refused *budget.RefusedError
	if errors.As(lost, &refused) { // why, not that the reservation's call was refused
		lost = cmp.Or(refused.Cause, refused.Err)
	}
	advice := "nothing of the response is recorded: send it again when the store is back"
	done, err := budgethttp.ApplyRefusal(ctx, b, f.call.Operation, resp)
	if v := done.Refused; err == nil && v != nil && !v.Until.IsZero() {
		advice = fmt.Sprintf("refusal %s locks this host until %s, and the store once it is back: send the response again then, for what else it says", v.Rule, v.Until.UTC().Format(time.RFC3339))
	}
	return &exitError{code: exitUnavailable, err: fmt.Errorf("take in the response to %s id %q: %w; %s", b.Name(), f.call.ID, lost, advice)}
}

// read reads the response and its body. It is wholly read before the store is opened: a
// pipe may take its time.
func (f *feedbackFlags) read(stdin io.Reader) (*http.Response, []byte, error) {
	in, from := stdin, "stdin"
	if f.file != "" {
		file, err := os.Open(f.file)
		if err != nil {
			return nil, nil, fmt.Errorf("read the response: %w", err)
		}
		defer func() { _ = file.Close() }() // it was only read
		in, from = file, f.file
	}
	resp, err := httpfile.Read(in)
	if err != nil {
		return nil, nil, fmt.Errorf("read the response of %s: %w", from, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("read the response of %s: its body: %w", from, err)
	}
	if httpfile.IsUnpacked(body) { // by curl --compressed
		resp.Header.Del("Content-Encoding")
	}
	return resp, body, nil
}

// heldReservation returns the receipt of a reservation by its id; false if the store
// has none. To get it, it charges the call again, which charges nothing. An id that the
// store does not have would be charged anew, and is released at once.
func heldReservation(ctx context.Context, b *budget.Budget, call budget.Call) (budget.Receipt, bool, error) {
	call.OnStoreError = budget.Closed
	fail := func(err error, advice string) (budget.Receipt, bool, error) {
		return budget.Receipt{}, false, noReservation(b.Name(), call.ID, err, advice)
	}
	r, err := b.Reserve(ctx, call, time.Second)
	switch {
	case errors.Is(err, budget.ErrConflict):
		return fail(budget.ErrConflict, "the id stands for another operation, for other units (tell them with --units), or for a charge without --reserve")
	case errors.Is(err, budget.ErrExhausted), errors.Is(err, budget.ErrNeverFits):
		return budget.Receipt{}, false, nil
	case err != nil:
		return budget.Receipt{}, false, err
	case r.Source == budget.SourceNone && r.Observed == budget.ErrUnknownOperation.Error(): // so it was not counted either
		return budget.Receipt{}, false, nil
	case r.Source == budget.SourceNone:
		return fail(budget.ErrUnavailable, "send the response again when it is back")
	case !r.Replayed:
		return budget.Receipt{}, false, r.Release(ctx)
	}
	return r.Receipt, true, nil
}

// noReservation is the error of a reservation that could not be found.
func noReservation(name, id string, err error, advice string) error {
	return fmt.Errorf("find the reservation of %s id %q: %w: %s", name, id, err, advice)
}
