package sqlitestore

import (
	"errors"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// clocks are the machine's clocks, all in µs. The store's time follows the boot clock,
// which nobody can set. The wall clock counts only if there is no earlier instant of this
// boot to continue from, so that setting it frees no units early.
type clocks struct {
	wall func() int64
	boot func() (int64, error) // since the boot, time asleep included
	id   string                // the boot's id
	only func() int64          // in tests, the store's clock itself; else nil
}

// anchor converts the boot clock of one boot to the store's clock.
type anchor struct {
	boot   string // the boot's id; empty: none yet
	offset int64  // store's clock − boot clock
}

// oneBoot reports whether the anchor is of the current boot. Then the store's clock does
// not depend on a clock that somebody could set.
func (c clocks) oneBoot(a anchor) bool { return c.only == nil && a.boot == c.id }

// read returns the store's clock by the anchor, and the anchor to keep.
func (c clocks) read(a anchor) (int64, anchor, error) {
	if c.only != nil {
		return c.only(), a, nil
	}
	since, err := c.boot()
	if err != nil {
		return 0, a, fmt.Errorf("%w: the machine's boot clock cannot be read: %w; run it on a machine where it can be", driver.ErrStoreConfig, err)
	}
	if a.boot == c.id {
		return since + a.offset, a, nil
	}
	wall := c.wall()
	return wall, anchor{boot: c.id, offset: wall - since}, nil
}

// wallAt is the wall clock, by which schedules tick. In tests that set the store's clock
// it is now.
func (c clocks) wallAt(now int64) int64 {
	if c.only != nil {
		return now
	}
	return c.wall()
}

// machineClocks are the given clocks, or this machine's if given is nil.
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
