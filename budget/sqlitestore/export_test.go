package sqlitestore

import "context"

// OpenWithClock opens a store whose clock is the one given, in µs: the machine's
// boot and its clocks have no part in it.
func OpenWithClock(ctx context.Context, path string, o Options, clock func() int64) (*Store, error) {
	return open(ctx, path, o, clocks{only: clock})
}

// OpenOnBoot opens a store on a machine with these clocks, in µs.
func OpenOnBoot(ctx context.Context, path string, o Options, id string, boot, wall func() int64) (*Store, error) {
	return open(ctx, path, o, clocks{id: id, wall: wall, boot: func() (int64, error) { return boot(), nil }})
}

// SetSteps makes transactions expire, build and walk so few rows, and prune so
// few, that calls take several.
func SetSteps(s *Store, steps, pruning int) { s.steps, s.pruning = steps, pruning }

// SetPaused has a function called between the transactions of one call.
func SetPaused(s *Store, paused func()) { s.paused = paused }
