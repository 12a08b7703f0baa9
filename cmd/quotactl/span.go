package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/quotactl/quotactl/budget/limit"
)

// spanFlag is a flag's span of time, written as in a configuration.
type spanFlag time.Duration

// spanVar defines a flag that takes a span.
func spanVar(flags *pflag.FlagSet, value *time.Duration, name string, otherwise time.Duration, usage string) {
	*value = otherwise
	flags.Var((*spanFlag)(value), name, usage)
}

func (s *spanFlag) Set(text string) error {
	d, err := limit.ParseSpan(text)
	*s = spanFlag(d)
	return err
}

func (s *spanFlag) String() string {
	if *s == 0 {
		return "" // the help then shows no default
	}
	return limit.SpanText(time.Duration(*s))
}

func (*spanFlag) Type() string { return "span" }
