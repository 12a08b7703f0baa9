package screen

import (
	"context"
	"io"
	"time"
)

// Watch shows something anew every so often until ctx ends, on a terminal in place. read says
// what to show; the text that it returns is drawn, and where a look fails the last text stays
// below the error. The first failure ends the watch, since then there is nothing to show.
// resized, which may be nil, has the screen drawn again. said is what was logged last, for the first
// line; empty: nothing was.
func Watch(ctx context.Context, to io.Writer, on func() Screen, every time.Duration, resized <-chan struct{}, said func() string, read func(context.Context) (text func(Screen) string, err error)) (err error) {
	frames := NewFrames(to)
	defer func() {
		if closing := frames.Close(); err == nil {
			err = closing
		}
	}()
	var last func(Screen) string
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		text, failed := read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case failed == nil:
			last = text
		case last == nil:
			return failed
		}
		draw := func() error {
			now := on()
			return frames.Draw(now, watchHead(now, every, failed, said())+last(now))
		}
		if err := draw(); err != nil {
			return err
		}
	wait:
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-ticks.C:
				break wait
			case <-resized:
				if err := draw(); err != nil {
					return err
				}
			}
		}
	}
}

// watchHead is the first line of a watch.
func watchHead(on Screen, every time.Duration, failed error, said string) string {
	if failed != nil {
		return on.Wrap("", on.Bad("✗ not read at "+on.Now.In(on.Zone).Format("15:04:05")+": "+Shown(failed.Error())+"; what is below is older"))
	}
	if said != "" {
		return on.Wrap("", on.Warn("! ")+Shown(said))
	}
	return on.Wrap("", on.Faint("every "+span(every)+"; Ctrl-C ends"))
}
