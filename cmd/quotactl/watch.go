package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/quotactl/quotactl/internal/screen"
)

// watchFlags are the flags of a command that can show its answer anew as it changes.
type watchFlags struct {
	watch bool
	every time.Duration
}

// The bounds of --every, and what it is unless told.
const (
	usualEvery = 2 * time.Second
	leastEvery = time.Second
)

// forecastKept is how long a watch shows a forecast.
const forecastKept = 30 * time.Second

func (w *watchFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.watch, "watch", false, "show it anew as it changes, until Ctrl-C; with --json one line for each change")
	spanVar(cmd.Flags(), &w.every, "every", usualEvery, "with --watch, look every `SPAN`, 1s or more")
}

func (w *watchFlags) check(changed func(string) bool) error {
	switch {
	case changed("every") && !w.watch:
		return usage("--every is for --watch: give --watch too")
	case w.every < leastEvery:
		return usage("--every %s: use 1s or more", w.every)
	}
	return nil
}

// watched is an answer that is shown anew.
type watched struct {
	text func(screen.Screen) string
	json any
	// lines are for a pipe: each is written when it differs from the one of the same name.
	lines []watchedLine
}

type watchedLine struct{ name, text string }

// watch shows what read returns until it is interrupted, which is its usual end.
func (a *app) watch(ctx context.Context, w watchFlags, asJSON bool, read func(context.Context) (watched, error)) error {
	if !asJSON && a.screen().Terminal {
		resized := make(chan struct{}, 1)
		stop := onResize(resized)
		defer stop()
		said, release := a.live.Hold()
		defer release()
		return screen.Watch(ctx, a.terminal, a.screen, w.every, resized, said, func(ctx context.Context) (func(screen.Screen) string, error) {
			seen, err := read(ctx)
			return seen.text, err
		})
	}
	ticks := time.NewTicker(w.every)
	defer ticks.Stop()
	var last any
	told := map[string]string{}
	for first := true; ; first = false {
		seen, err := read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			a.logger().Warn("it could not be read; trying again", "error", err)
		case asJSON:
			if last, err = a.writeChange(last, seen.json); err != nil {
				return err
			}
		default:
			for _, l := range seen.lines {
				if told[l.name] == l.text {
					continue
				}
				told[l.name] = l.text
				if err := writeText(a.stdout, fmt.Sprintf("%s  %s: %s\n", a.screen().Time(a.now()), l.name, l.text)); err != nil {
					return err
				}
			}
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// writeChange writes a document on one line unless it says the same as the last one. What
// differs at each look does not count: when it was, and what is foretold from then on.
func (a *app) writeChange(last, value any) (any, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("write the answer: %w", err)
	}
	var says any
	if err := json.Unmarshal(text, &says); err != nil {
		return nil, fmt.Errorf("write the answer: %w", err)
	}
	forget(says)
	if reflect.DeepEqual(says, last) {
		return last, nil
	}
	return says, writeText(a.stdout, string(text)+"\n")
}

// forget removes from a document what differs at each look.
func forget(value any) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range []string{"at", "rate", "rates", "plan", "seen", "renewed"} {
			delete(v, name)
		}
		for _, one := range v {
			forget(one)
		}
	case []any:
		for _, one := range v {
			forget(one)
		}
	}
}

// onResize tells of each change of the terminal's size.
func onResize(to chan<- struct{}) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGWINCH)
	over := make(chan struct{})
	go func() {
		for {
			select {
			case <-signals:
				select {
				case to <- struct{}{}:
				default:
				}
			case <-over:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(over)
	}
}
