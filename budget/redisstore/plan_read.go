package redisstore

import (
	"strconv"
	"strings"

	"github.com/quotactl/quotactl/budget/limit"
)

// isPlan checks what charge.lua answers for a plan: the head or nothing, the windows' keys, how
// many covers there are, the places of those that were asked for, and the buckets.
var isPlan = tuple(isText, isText, count, listOf(count), listOf(isText))

// plannedWindow is a live window of a ledger. The length is 0 for open reservations, and below
// 0 for a calendar.
type plannedWindow struct {
	length, precision int64
	used              bool // a limit of the plan has it
}

// plannedMeter is what counts a bucket of a ledger: limit says which operations, and whether
// units or calls.
type plannedMeter struct {
	key            string
	amount, period int64
	limit          limit.Limit
}

// parseWindow reads the key of a window.
func parseWindow(key string) (w plannedWindow, ok bool) {
	rolling, ok := strings.CutPrefix(key, "r:")
	if !ok {
		return plannedWindow{length: -1}, true
	}
	length, precision, coarse := strings.Cut(rolling, ":")
	w.length, ok = parseCount(length)
	if coarse && ok {
		w.precision, ok = parseCount(precision)
	}
	return w, ok
}

// parseMeter reads the key of a bucket and its patterns, as lua/meters.lua has them.
func parseMeter(text string) (m plannedMeter, ok bool) {
	key, patterns, ok := strings.Cut(text, " ")
	parts := strings.Split(key, ":")
	if !ok || len(parts) != 5 {
		return m, false
	}
	m.key = key
	m.limit.Window.Kind, m.limit.Counts = limit.Bucket, limit.CountUnits
	if parts[3] == string(limit.CountCalls[:1]) {
		m.limit.Counts = limit.CountCalls
	}
	if patterns != "-" {
		m.limit.Operations = strings.Split(patterns, ",")
	}
	m.amount, ok = parseCount(parts[1])
	if ok {
		m.period, ok = parseCount(parts[2])
	}
	return m, ok && m.period > 0
}

func parseCount(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0
}
