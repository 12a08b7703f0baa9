package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/internal/daemon"
	"github.com/quotactl/quotactl/internal/screen"
)

// The exit codes; the help lists them.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnavailable = 69
	exitExhausted   = 75
	exitInterrupted = 130
)

// exitError ends the program with a code that its error alone does not tell.
// An err of nil says nothing on stderr.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage is an error in how the program was called.
func usage(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// exitCode is the code for an error: the one place that decides. A shortage of the machine passes
// by itself, so it is no wrong usage, whatever could not be read or written.
func exitCode(err error) int {
	code := codeOf(err)
	if code == exitUsage && driver.Shortage("", err) != "" {
		return exitUnavailable
	}
	return code
}

// codeOf is the code for the kind of an error.
func codeOf(err error) int {
	var coded *exitError
	var faults config.Errors
	var endpoint *daemon.EndpointError
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &coded):
		return coded.code
	case errors.Is(err, context.Canceled), errors.Is(err, daemon.ErrInterrupted):
		return exitInterrupted
	case errors.Is(err, budget.ErrExhausted):
		return exitExhausted
	case errors.As(err, &faults), errors.As(err, &endpoint),
		errors.Is(err, budget.ErrNeverFits),
		errors.Is(err, budget.ErrUnknownOperation),
		errors.Is(err, budget.ErrUnknownBudget),
		errors.Is(err, budget.ErrTooManyUnits),
		errors.Is(err, budget.ErrInvalid),
		errors.Is(err, budget.ErrStoreConfig):
		return exitUsage
	case errors.Is(err, budget.ErrUnavailable):
		return exitUnavailable
	}
	return exitFailed
}

// finish says on stderr what went wrong, a line for each fault, and returns
// the exit code.
func (a *app) finish(err error) int {
	var coded *exitError
	if err == nil || errors.As(err, &coded) && coded.err == nil {
		return exitCode(err)
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if a.errorScreen().Terminal {
			line = screen.Shown(line)
		}
		// A stderr that cannot be written leaves the exit code to speak.
		_, _ = fmt.Fprintf(a.stderr, "quotactl: %s\n", line)
	}
	return exitCode(err)
}
