package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/budget/driver"
)

// mostLag is the longest lag, in seconds, that doctor accepts for min-replicas-max-lag. It
// is Redis's default.
const mostLag = 10

// startReplica is the advice for a master whose replicas do not keep up.
const startReplica = "start the replica that is down, or add one: every charge is refused until enough keep up"

// guard is the two settings that keep a master that was cut off from spending:
// min-replicas-to-write and min-replicas-max-lag. They are empty if the user may not read
// them.
type guard struct{ least, lag string }

func guardOf(ctx context.Context, c *redis.Client) guard {
	return guard{configOf(ctx, c, "min-replicas-to-write"), configOf(ctx, c, "min-replicas-max-lag")}
}

// tellsRefusal reports whether a finding says that a master refuses writes.
func tellsRefusal(f driver.Finding) bool { return f.Check == "replicas" && f.Level == driver.Fault }

// replicaFinding reports a master's replicas and its guard.
func replicaFinding(addr string, field map[string]string, g guard, at place) driver.Finding {
	replicas := field["connected_slaves"]
	f := driver.Finding{Check: "replicas", Level: driver.OK}
	good, err := strconv.Atoi(field["min_slaves_good_slaves"]) // present if both settings are above 0
	least, _ := strconv.Atoi(g.least)
	switch {
	case err == nil && good < least:
		f.Level, f.Advice = driver.Fault, startReplica
		f.Says = fmt.Sprintf("%s refuses writes: %d of the %d replicas that min-replicas-to-write asks for keep up within %s s", addr, good, least, g.lag)
	case replicas == "0" || replicas == "":
		f.Says = addr + " has no replica"
		if at.mode == sentinel || at.mode == cluster {
			f.Level, f.Advice = driver.Warning, "add one, on another machine: if this server fails, nothing takes its place, and its budgets are out of reach until it is back"
		}
	default:
		n, _ := strconv.Atoi(replicas)
		f.Says = fmt.Sprintf("%s has %s, and writes when %s of them keep up within %s s", addr, plural(replicas, "replica"), g.least, g.lag)
		if f.Level, f.Advice = g.judge(n, at); g.least == "" || g.lag == "" {
			f.Says = fmt.Sprintf("%s has %s, and does not show min-replicas-to-write and min-replicas-max-lag", addr, plural(replicas, "replica"))
		}
	}
	return f
}

// promotedFinding reports the guard that a replica would have as the master, with as many
// replicas as its master has now. Redis does not replicate the settings.
func promotedFinding(addr string, replicas int, g guard, at place) driver.Finding {
	f := driver.Finding{Check: "replicas", Says: fmt.Sprintf("%s, once it is the master, writes when %s of its replicas keep up within %s s", addr, g.least, g.lag)}
	if f.Level, f.Advice = g.judge(replicas, at); g.least == "" || g.lag == "" {
		f.Says = addr + " does not show min-replicas-to-write and min-replicas-max-lag"
	}
	return f
}

// judge returns the level and the advice for the guard of a server with so many replicas.
func (g guard) judge(replicas int, at place) (driver.Severity, string) {
	most := lagBefore(at.replaced)
	behind, _ := strconv.Atoi(g.lag)
	set := fmt.Sprintf("set min-replicas-to-write 1 and min-replicas-max-lag %d (CONFIG SET min-replicas-to-write 1, CONFIG SET min-replicas-max-lag %d, and CONFIG REWRITE to keep them over a restart)", most, most)
	switch {
	case g.least == "" || g.lag == "":
		return driver.Warning, asSomebody + ": they should be 1 and " + strconv.Itoa(most)
	case g.least == "0" && replicas == 1:
		return driver.Warning, "add a second replica first: with only one, the failure of either server stops all writes until it is back; then " + set + ": " + unguarded
	case g.least == "0":
		return driver.Warning, set + ": " + unguarded
	case behind == 0 || behind > most:
		return driver.Warning, fmt.Sprintf("set min-replicas-max-lag %d (CONFIG SET min-replicas-max-lag %d, and CONFIG REWRITE); 0 sets no bound. Until a master that was cut off notices, it spends beside the one that took its place", most, most)
	}
	return driver.OK, ""
}

// unguarded says what happens without the settings.
const unguarded = "without them a master that was cut off and the one that took its place both spend what is left, and a failover may lose the newest charges"

// lagBefore is the longest lag, in whole seconds, with which a master that is cut off stops
// writing before it is replaced. The master checks its replicas once a second.
func lagBefore(replaced time.Duration) int {
	if replaced == 0 {
		return mostLag
	}
	return min(mostLag, max(1, int(replaced/time.Second)-1))
}
