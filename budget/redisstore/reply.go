package redisstore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// The store checks the form of every reply before it uses it. A proxy, another program's
// script under the same name or a damaged ledger may send anything, and a missing number
// must not be read as 0, which means done.

// form reports whether a value has the form that a script sends.
type form func(v any) bool

// maxWhole is the largest integer that scripts count exactly.
const maxWhole int64 = 1 << 53

// whole reads an integer that a script sent, as a number or as text.
func whole(v any) (n int64, ok bool) {
	switch v := v.(type) {
	case int64:
		n, ok = v, true
	case string:
		parsed, err := strconv.ParseInt(v, 10, 64)
		n, ok = parsed, err == nil
	}
	return n, ok && -maxWhole <= n && n <= maxWhole
}

// integer is any integer.
func integer(v any) bool {
	_, ok := whole(v)
	return ok
}

// count is an amount or an instant: an integer from 0.
func count(v any) bool {
	n, ok := whole(v)
	return ok && n >= 0
}

// within is an integer in a range.
func within(least, most int64) form {
	return func(v any) bool {
		n, ok := whole(v)
		return ok && least <= n && n <= most
	}
}

// flag is 1 for yes, 0 for no.
var flag = within(0, 1)

// clocked is what a server's clock can show, in µs.
var clocked = within(1, maxWhole)

func isText(v any) bool {
	_, ok := v.(string)
	return ok
}

// maxNames bounds the operations of a ledger in a reply.
const maxNames = 1 << 12

// isNames is operations joined by commas.
func isNames(v any) bool {
	names, ok := v.(string)
	return ok && strings.Count(names, ",") < maxNames
}

// textOrNone is a string or nil.
func textOrNone(v any) bool { return v == nil || isText(v) }

// tuple is a list of exactly these.
func tuple(forms ...form) form {
	return func(v any) bool {
		list, ok := v.([]any)
		if !ok || len(list) != len(forms) {
			return false
		}
		for i, f := range forms {
			if !f(list[i]) {
				return false
			}
		}
		return true
	}
}

// listOf is a list of any number of these.
func listOf(f form) form {
	return func(v any) bool {
		list, ok := v.([]any)
		for _, one := range list {
			ok = ok && f(one)
		}
		return ok
	}
}

// The forms of replies that do not depend on the call, after status and clock if the
// reply has these.
var (
	replyHead   = tuple(within(statusDone, statusPlans), clocked)
	formOfRest  = map[int64]form{statusAgain: tuple(isNames), statusRegistry: tuple(isNames, isNames), statusPeriods: tuple(count), statusClock: tuple(), statusDamaged: tuple(isText), statusNewer: tuple(isText), statusLost: tuple(), statusDays: tuple(isNames), statusPlans: tuple(isPlans)}
	entriesRest = tuple(count, isText, count, count, count, listOf(isText), isText)
	historyRest = tuple(count, count, isText, listOf(listOf(isText)), isText)
	finishedOne = tuple(within(int64(driver.Settled), int64(driver.FinishOverflow)), flag, count)
	lockRest    = tuple(count, count, isText, flag)
	lookedAt    = tuple(count, integer, count, count, isText, count, count, listOf(count))
	lookedInto  = tuple(count, count, count) // a bucket
	recoveredOf = tuple(count, isText)
	reportedOf  = tuple(count, count, count)
	importedOf  = tuple(count, count, count, count)
	isSwapped   = tuple(within(swapOther, swapDamaged), clocked, flag)
	isRecord    = tuple(integer, isText, textOrNone)
)

// spentRest is the form of spent.lua's reply. Names are numbers up to operations, or any
// text if operations is negative.
func spentRest(operations int) form {
	name := form(isText)
	if operations >= 0 {
		name = within(1, int64(operations))
	}
	return tuple(count, listOf(tuple(name, count, count, count, count)), isText)
}

// finishRest checks the reply on so many reservations.
func finishRest(rest []any, n int) bool {
	for i := range n {
		if len(rest) != 3*n || !finishedOne(rest[3*i:3*i+3]) {
			return false
		}
	}
	return true
}

// isDocuments checks the reply on so many jobs' documents: a clock, and for each job the
// version and the text. A document that was never put has version 0 and no text.
func isDocuments(reply []any, jobs int) bool {
	if len(reply) != 1+2*jobs || !clocked(reply[0]) {
		return false
	}
	for i := range jobs {
		version, text := reply[1+2*i], reply[2+2*i]
		if !count(version) || !textOrNone(text) || (text == nil) != (number(version) == 0) {
			return false
		}
	}
	return true
}

// isRecords checks a page of a history with at most so many records.
func isRecords(reply []any, most int) bool { return len(reply) <= most && listOf(isRecord)(any(reply)) }

// isAnswered checks charge.lua's reply to the batch.
func (b *batch) isAnswered(rest []any) bool {
	if !tuple(listOf(listOf(anything)), count, count, listOf(listOf(anything)), listOf(count), isLocks, isTold, listOf(within(1, int64(len(b.Others)))), isHolds, count)(any(rest)) {
		return false
	}
	answers := lists(rest, 0)
	if len(answers) != len(b.open) {
		return false
	}
	for j, i := range b.open {
		if !b.isDecision(b.Items[i], answers[j]) {
			return false
		}
	}
	looks, used := list(rest, 3), len(list(rest, 4))
	switch {
	case (b.mode == deciding || b.mode == looking) && used != 0 && used != len(b.Limits)+1, b.mode != deciding && b.mode != looking && used != 1:
		return false
	case b.mode == deciding:
		return len(looks) == 0
	case b.mode == importing:
		return tuple(importedOf)(any(looks))
	case b.mode == looking && len(looks) == 0: // the budget has no ledger
		return true
	case len(looks) != len(b.Limits):
		return false
	}
	for i, seen := range looks {
		if !b.isLook(b.Limits[i].Window, seen) {
			return false
		}
	}
	return true
}

func anything(any) bool { return true }

// isLook checks the reply on one limit to a look, a recovery or a report.
func (b *batch) isLook(w limit.Window, seen any) bool {
	switch {
	case b.mode == reporting:
		return reportedOf(seen)
	case b.mode != looking:
		return recoveredOf(seen)
	case w.Kind != limit.Bucket:
		return lookedAt(seen)
	}
	return lookedInto(seen) && isPart(w, list([]any{seen}, 0)[1])
}

// isPart checks the part of a bucket's level.
func isPart(w limit.Window, v any) bool {
	_, period := w.Refill.Rate()
	return within(0, period-1)(v)
}

// isDecision checks the answer on one item. A grant must be for the units asked, and a
// refusal must say until when.
func (b *batch) isDecision(item driver.Item, answer []any) bool {
	limits := int64(len(b.Limits))
	const head = 6
	staged := len(answer) == head+2*len(b.Limits)+1 && numberAt(answer, 0) == int64(driver.Refused)
	if len(answer) != head+2*len(b.Limits) && !staged ||
		!tuple(integer, flag, count, count, within(0, limits+1), isText)(any(answer[:head])) {
		return false
	}
	refusing := 0
	for i, limit := range b.Limits {
		used, score := answer[head+2*i], answer[head+2*i+1]
		if !count(used) {
			return false
		}
		if found, ok := score.(string); ok {
			if !isScore(limit, found, staged) {
				return false
			}
			refusing++
		} else if score != int64(0) {
			return false
		}
	}
	switch result := numberAt(answer, 0); result {
	case int64(driver.Granted):
		charged, replayed := numberAt(answer, 3) > 0 || item.DryRun, numberAt(answer, 1) == 1
		if replayed {
			_, _, ok := readReplayed(text(answer, 5))
			charged = charged && ok
		}
		return charged && (numberAt(answer, 2) == item.Units || replayed && item.IsHold())
	case int64(driver.Refused):
		bound, ok := readBinding(text(answer, 5), len(b.Limits))
		if staged && !b.isStaged(list(answer, len(answer)-1)) {
			return false
		}
		return ok && (refusing+len(bound) > 0 || staged) && numberAt(answer, 3) > 0
	case int64(driver.NeverFits):
		return within(1, limits)(answer[4])
	case int64(driver.Fenced):
		return item.Fence != "" && !item.Recorded
	case int64(driver.Conflict), int64(driver.Late), int64(driver.Overflow), resultAgain, resultDamaged:
		return true
	}
	return false
}

// readReplayed reads the answer on a replayed charge: a letter for its state, then its
// labels with the entry's marks.
func readReplayed(told string) (ended driver.Ended, first driver.Labels, ok bool) {
	if told == "" {
		return "", first, false
	}
	ended, ok = map[byte]driver.Ended{'p': "", 'o': "", 's': driver.EndedSettled, 'r': driver.EndedReleased, 'x': driver.EndedLease}[told[0]]
	labels := strings.Split(told[1:], "|")
	if !ok || len(labels) < 3 {
		return "", first, false
	}
	return ended, driver.Labels{Job: labels[0], Region: labels[1], Run: labels[2]}, true
}

// isScore checks the score that must leave a window for an item that its limit refused. It is -1
// if what is held is too much.
func isScore(l limit.Limit, found string, held bool) bool {
	w := l.Window
	if len(l.Shares) > 0 {
		_, ok := readShared(l, found)
		return ok
	}
	if w.Kind != limit.Bucket {
		return count(found) || held && found == "-1"
	}
	part, at, ok := strings.Cut(found, "/")
	return ok && isPart(w, part) && count(at)
}

// strange reports a reply that no script of this version sends.
func (s *Store) strange(doing string, reply any) error {
	return fmt.Errorf("%s in Redis: %w: a script answered %s; is there a proxy that changes answers?", doing, driver.ErrStoreConfig, shown(reply))
}

// maxShown is how many characters of a strange reply the error shows.
const maxShown = 200

// shown is the beginning of a reply, on one line.
func shown(reply any) string {
	text := []rune(strconv.Quote(fmt.Sprint(reply)))
	if len(text) > maxShown {
		return string(text[:maxShown]) + "…"
	}
	return string(text)
}
