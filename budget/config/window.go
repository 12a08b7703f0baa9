package config

import (
	"strconv"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/limit"
)

// windowKeys are the keys that say what a limit counts over, and the keys that belong to
// each. Each limit has one of them.
var windowKeys = []struct {
	key, example string
	own          []string
}{
	{"window", `window = "24h"`, []string{"precision"}},
	{"calendar", `calendar = "day"`, []string{"timezone", "starts", "guard"}},
	{"refill", `refill = "50/s"`, nil},
	{"concurrent", `concurrent = true`, nil},
}

// readWindow reads what a limit counts over.
func readWindow(node Node, t map[string]Node) limit.Window {
	before := len(node.doc.errors)
	kind := ""
	var examples []string
	for _, k := range windowKeys {
		examples = append(examples, k.example)
		if !t[k.key].Exists() {
			continue
		}
		if kind != "" {
			t[k.key].Fail("%s and %s are both given: write two limits, one of each", kind, k.key)
			return limit.Window{}
		}
		kind = k.key
	}
	if kind == "" {
		node.Fail("limit %s has no window: write %s", node.Key(), strings.Join(examples[:len(examples)-1], ", ")+" or "+examples[len(examples)-1])
		return limit.Window{}
	}
	for _, k := range windowKeys {
		for _, key := range k.own {
			if k.key != kind && t[key].Exists() {
				t[key].Fail("%s belongs to %s: write %s instead of %s, or take %s out", key, k.key, k.key, kind, key)
			}
		}
	}
	var window limit.Window
	switch kind {
	case "window":
		window = readRolling(t)
	case "calendar":
		window = readCalendar(t)
	case "refill":
		window = readRefill(t["refill"])
	default:
		if on, ok := t["concurrent"].Bool(); ok && !on {
			t["concurrent"].Fail("concurrent = false bounds nothing: write concurrent = true, or another window")
		}
		window = limit.ConcurrentWindow()
	}
	if len(node.doc.errors) > before {
		return limit.Window{}
	}
	return window
}

// readRolling reads a window and its precision.
func readRolling(t map[string]Node) limit.Window {
	length, ok := t["window"].Duration(time.Millisecond, limit.MaxWindow)
	if !ok || !t["precision"].Exists() {
		return limit.RollingWindow(length)
	}
	precision, _ := t["precision"].Duration(time.Duration(limit.MinPrecision)*time.Microsecond, length)
	return limit.CoarseWindow(length, precision)
}

// periods are the periods that a refill may name without a number.
var periods = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

// readRefill reads "50/s" or "40000/24h": an amount and the period it comes in.
func readRefill(node Node) limit.Window {
	text, ok := node.Text()
	if !ok {
		return limit.Window{}
	}
	number, per, cut := strings.Cut(text, "/")
	amount, err := strconv.ParseInt(strings.ReplaceAll(strings.TrimSpace(number), "_", ""), 10, 64)
	per = strings.TrimSpace(per)
	period, named := periods[per]
	if !named {
		var bad error
		if period, bad = limit.ParseSpan(per); bad != nil {
			cut = false
		}
	}
	if short, isShort := plainNumber(strings.TrimSpace(number)); cut && err != nil && isShort {
		node.Fail("refill = %q is not a rate: write the number out: \"%s/%s\"", text, short, per)
		return limit.Window{}
	}
	if !cut || err != nil {
		node.Fail("refill = %q is not a rate: write units and the time they come in, such as \"50/s\", \"1000/h\" or \"7/30s\"", text)
		return limit.Window{}
	}
	refill, err := limit.NewRefill(amount, period)
	if err != nil {
		node.Fail("refill = %q: %s", text, err)
		return limit.Window{}
	}
	return limit.BucketWindow(refill)
}

// readCalendar reads all keys of a calendar, to find every error.
func readCalendar(t map[string]Node) limit.Window {
	before := len(t["calendar"].doc.errors)
	length, _ := t["calendar"].OneOf(limit.Quarter, limit.Hour, limit.Day, limit.Month)
	zone := "UTC"
	if text, ok := t["timezone"].Text(); ok {
		zone = text
		if _, err := limit.NewCalendar(limit.Day, zone, 0); err != nil {
			t["timezone"].Fail("%s", err)
		}
	}
	starts, hasStart := readTimeOfDay(t["starts"])
	if hasStart && (length == limit.Quarter || length == limit.Hour) {
		t["starts"].Fail("starts: only a day or a month can have a start, not %q", length)
	}
	guard, _ := t["guard"].Duration(time.Microsecond, time.Duration(limit.MaxGuard)*time.Microsecond)
	if len(t["calendar"].doc.errors) > before {
		return limit.Window{}
	}
	calendar, err := limit.NewCalendar(length, zone, starts)
	if err != nil {
		t["calendar"].Fail("%s", err)
		return limit.Window{}
	}
	window := limit.CalendarWindow(calendar)
	window.Guard = guard.Microseconds()
	return window
}

// readTimeOfDay reads "HH:MM" as the span since midnight.
func readTimeOfDay(node Node) (time.Duration, bool) {
	text, ok := node.Text()
	if !ok {
		return 0, false
	}
	at, err := time.Parse("15:04", text)
	if err != nil {
		node.Fail("%s = %q is not a time of day: write \"00:00\" to \"23:59\"", node.Key(), text)
		return 0, false
	}
	return time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute, true
}
