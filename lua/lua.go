// Package lua holds the scripts that run in Redis, one file each, every one
// opening with its KEYS, ARGV and answer. [With] joins a script with what it
// shares: the clock, its arguments by name, the ledger's layout, which layout.lua
// tells, its meters and windows, and the walk of a refusal.
package lua

import (
	_ "embed"
	"strings"
)

//go:embed clock.lua
var clock string

//go:embed args.lua
var arguments string

//go:embed layout.lua
var layout string

//go:embed ledger.lua
var ledger string

//go:embed meters.lua
var meters string

//go:embed locks.lua
var locks string

//go:embed lock.lua
var lock string

//go:embed drift.lua
var drift string

//go:embed windows.lua
var windows string

//go:embed walk.lua
var walk string

//go:embed replay.lua
var replay string

//go:embed recover.lua
var recovering string

//go:embed merge.lua
var merge string

//go:embed look.lua
var look string

//go:embed charge.lua
var charge string

//go:embed finish.lua
var finish string

//go:embed spent.lua
var spent string

//go:embed accept.lua
var accept string

//go:embed forget.lua
var forget string

//go:embed doctor.lua
var doctor string

//go:embed probe.lua
var probe string

//go:embed job_read.lua
var jobRead string

//go:embed job_value.lua
var jobValue string

//go:embed job_history.lua
var jobHistory string

//go:embed job_swap.lua
var jobSwap string

// Clock is the snippet through which all scripts read the time.
func Clock() string { return clock }

// Scripts are the texts of all scripts.
type Scripts struct {
	Charge, Finish, Lock, Spent            string
	Accept, Forget, Probe, Doctor          string
	JobRead, JobValue, JobHistory, JobSwap string
}

// With joins the scripts with a clock snippet: [Clock], but in tests.
func With(clock string) Scripts {
	join := func(parts ...string) string { return clock + "\n" + strings.Join(parts, "\n") }
	onLedger := func(parts ...string) string {
		return join(append([]string{arguments, layout, meters, locks, ledger}, parts...)...)
	}
	return Scripts{
		Charge: onLedger(windows, walk, replay, merge, recovering, drift, look, charge),
		Finish: onLedger(finish), Spent: onLedger(spent), Lock: onLedger(lock),
		Accept: join(accept), Forget: join(forget), Probe: join(probe), Doctor: join(doctor),
		JobRead: join(jobRead), JobValue: join(jobValue), JobHistory: join(arguments, jobHistory), JobSwap: join(arguments, jobSwap),
	}
}
