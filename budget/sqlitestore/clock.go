package sqlitestore

import (
	"errors"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// clocks are the machine's clocks, all in µs. Time passes by the boot clock,
// which nobody can set: the wall clock counts only where there is no instant of
// this boot to go on from, so that stepping it frees nothing early.
type clocks struct {
	wall func() int64
	boot func() (int64, error) // since the boot, time asleep included
	id   string                // of the boot
	only func() int64          // the store's clock itself, for tests; else nil
}

// anchor is what turns the boot clock of one boot into the store's clock.
type anchor struct {
	boot   string // the boot's id; empty: none yet
	offset int64  // store's clock − boot clock
}

// oneBoot reports whether the anchor's boot is the one that still runs, so that
// no clock that could be set has a part in the store's.
func (c clocks) oneBoot(a anchor) bool { return c.only == nil && a.boot == c.id }

// read is the store's clock by the anchor, and the anchor to keep.
func (c clocks) read(a anchor) (int64, anchor, error) {
	if c.only != nil {
		return c.only(), a, nil
	}
	since, err := c.boot()
	if err != nil {
		return 0, a, fmt.Errorf("%w: the machine's boot clock cannot be read: %w; run it where it can", driver.ErrStoreConfig, err)
	}
	if a.boot == c.id {
		return since + a.offset, a, nil
	}
	wall := c.wall()
	return wall, anchor{boot: c.id, offset: wall - since}, nil
}

// wallAt is the wall clock, by which schedules tick; now where the store's clock
// is given.
func (c clocks) wallAt(now int64) int64 {
	if c.only != nil {
		return now
	}
	return c.wall()
}

// machineClocks are the clocks of this machine, or those that stand for them.
func machineClocks(given *Clocks) (c clocks, err error) {
	if given == nil {
		c = clocks{wall: func() int64 { return time.Now().UnixMicro() }, boot: bootClock}
		c.id, err = bootID()
	} else {
		c = clocks{wall: given.Wall, boot: func() (int64, error) {
			_, since, err := given.Boot()
			return since, err
		}}
		c.id, _, err = given.Boot()
	}
	if err == nil && c.id == "" {
		err = errors.New("the boot has no id")
	}
	return c, err
}
