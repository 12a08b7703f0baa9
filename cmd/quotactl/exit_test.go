package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/daemon"
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
		// What may pass by itself is no wrong usage, whatever it was that could not be read.
		{usage("read the configuration: %w", &fs.PathError{Op: "open", Path: "costs.toml", Err: syscall.EMFILE}), 69},
		{fmt.Errorf("%w: %w", budget.ErrStoreConfig, syscall.ENOSPC), 69},
		{&daemon.EndpointError{}, 2},
		{usage("read the configuration: %w", &fs.PathError{Op: "open", Path: "costs.toml", Err: syscall.EACCES}), 2},
		{fmt.Errorf("write the output: %w", syscall.ENOSPC), 1},
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
