package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
)

func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0},
		{errors.New("something else"), 1},
		{budget.ErrConflict, 1},
		{budget.ErrClock, 1},
		{budget.ErrDamaged, 1},
		{budget.ErrNeverFits, 2},
		{budget.ErrUnknownOperation, 2},
		{budget.ErrUnknownBudget, 2},
		{budget.ErrInvalid, 2},
		{budget.ErrTooManyUnits, 2},
		{budget.ErrStoreConfig, 2},
		{config.Errors{{File: "f", Line: 1, Message: "m"}}, 2},
		{usage("wrong"), 2},
		{budget.ErrUnavailable, 69},
		{budget.ErrExhausted, 75},
		{context.Canceled, 130},
		{&exitError{code: exitInterrupted}, 130},
		// A refusal is what it says, whatever the store said beneath.
		{&budget.RefusedError{Err: budget.ErrExhausted, Cause: context.DeadlineExceeded}, 75},
		{&budget.RefusedError{Err: budget.ErrUnavailable, Cause: context.DeadlineExceeded}, 69},
		// A code that was given beats what the error wraps.
		{&exitError{code: exitUsage, err: budget.ErrUnavailable}, 2},
	} {
		for _, err := range []error{c.err, wrapped(c.err), errors.Join(c.err, nil)} {
			check.Equal(t, exitCode(err), c.want, "exit code of", err)
		}
	}
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("doing something: %w", err)
}

// Every line on stderr opens with the program's name; an error without words
// says nothing.
func TestFinish(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{&exitError{code: exitExhausted}, ""},
		{errors.New("one"), "quotactl: one\n"},
		{errors.Join(errors.New("one"), errors.New("two")), "quotactl: one\nquotactl: two\n"},
	} {
		var stderr bytes.Buffer
		a := &app{stderr: &stderr}
		if code := a.finish(c.err); code != exitCode(c.err) || stderr.String() != c.want {
			t.Errorf("finish(%v) = %d and says %q, want %q", c.err, code, stderr.String(), c.want)
		}
	}
}
