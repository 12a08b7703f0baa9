package redisstore

import (
	"slices"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// A stagedRefusal is a refusal beside living holds, whose ends RetryAt may depend on. charge.lua
// answers it in stages: first as if no hold ever ended, then for each instant at which some end,
// as if these had ended and the others never did. What binds is that of the first stage.
type stagedRefusal struct {
	binding  driver.Decision // the first stage's, by what ends last by itself
	answer   driver.Decision // the first stage's, put off until the item fits all limits at one instant
	together int64           // when that is; limit.Never: at no time
	from     int64           // the stage to ask for next
}

// until is the decision if the item fits at an instant.
func (s *stagedRefusal) until(at int64) driver.Decision {
	if at == s.together {
		return s.answer
	}
	d := s.binding
	d.RetryAt = at
	return d
}

// firstStage reads the first stage.
func (b *batch) firstStage(item driver.Item, answer []any) *stagedRefusal {
	d, waits := b.refusal(item, answer)
	s := &stagedRefusal{binding: d, together: limit.Never}
	if d.RetryAt == limit.Never {
		return s
	}
	s.answer = d.Together(b.Limits, item, waits, numberAt(answer, 3), func(i int) int64 { return b.Limits[i].Remaining(numberAt(answer, 6+2*i)) })
	if s.answer.Result == driver.Refused {
		s.together = s.answer.RetryAt
	} else { // unless a hold ends
		s.binding = s.answer
		s.binding.Result = driver.Refused
	}
	return s
}

// takeStages reads the answer on an item that is refused beside living holds. It returns false
// if further stages must be asked for.
func (b *batch) takeStages(i int, answer []any) bool {
	told := list(answer, len(answer)-1)
	ends, stages := list(told, 0), lists(told, 1)
	s := b.staged[i]
	if s == nil || numberAt(answer, 4) == 0 { // else it goes on with them
		if b.staged == nil {
			b.staged, b.progress = map[int]*stagedRefusal{}, map[int]string{}
		}
		s = b.firstStage(b.Items[i], answer)
		s.from = numberAt(ends, 0)
		b.staged[i] = s
	}
	if s.together < numberAt(ends, 0) {
		b.decided.Items[i] = s.answer
		return true
	}
	for _, stage := range stages {
		begins := numberAt(stage, 0)
		next := limit.Never
		if k := slices.IndexFunc(ends, func(end any) bool { return number(end) > begins }); k >= 0 {
			next = numberAt(ends, k)
		}
		at := b.stageFits(b.Items[i], answer, stage)
		switch {
		case at < next:
			b.decided.Items[i] = s.until(at)
			return true
		case next == limit.Never:
			never := s.binding
			never.RetryAt = limit.Never
			if never = never.UnlessPlanned(b.Limits, b.Items[i], numberAt(answer, 3)); never.RetryAt == limit.Never {
				never = b.neverTogether(b.Items[i], answer)
			}
			b.decided.Items[i] = never
			return true
		}
		s.from = next
	}
	b.progress[i] = text(told, 2)
	return false
}

// stageFits is the first instant from the beginning of a stage on at which an item fits if no
// hold ended after that.
func (b *batch) stageFits(item driver.Item, answer, stage []any) int64 {
	now, from := numberAt(answer, 3), numberAt(stage, 0)
	locks, _ := readBinding(text(answer, 5), len(b.Limits)) // checked with the reply
	for _, lock := range locks {
		from = max(from, lock.until)
	}
	var waits []limit.Wait
	for i, l := range b.Limits {
		wait, _, ok := waitFor(item, l, numberAt(answer, 6+2*i), text(stage, 1+i), now)
		if !ok {
			continue
		}
		waits = append(waits, wait)
		if wait.Refused {
			from = max(from, wait.From(now))
		}
	}
	if from == limit.Never {
		return from
	}
	return limit.FitsTogether(waits, from)
}

// neverTogether is the decision on an item that never fits all limits at one instant.
func (b *batch) neverTogether(item driver.Item, answer []any) driver.Decision {
	d := driver.Decision{Result: driver.NeverFits, Limit: item.FirstWithLapses(b.Limits, numberAt(answer, 3))}
	if d.Limit >= 0 {
		d.Remaining = b.Limits[d.Limit].Remaining(numberAt(answer, 6+2*d.Limit))
	}
	return d
}

// isStaged checks what the script tells of a refusal beside living holds: when they end; stages,
// each with its instant and what is found for each limit, as on the item; and how far the next
// stage got.
func (b *batch) isStaged(told []any) bool {
	if !tuple(listOf(count), listOf(listOf(anything)), isText)(any(told)) {
		return false
	}
	ends := list(told, 0)
	if len(ends) == 0 || len(ends) > driver.MaxHolds || !slices.IsSortedFunc(ends, func(a, b any) int { return int(number(a) - number(b)) }) {
		return false
	}
	for _, stage := range lists(told, 1) {
		if len(stage) != 1+len(b.Limits) || !count(stage[0]) {
			return false
		}
		for i, l := range b.Limits {
			if found, ok := stage[1+i].(string); ok && !isScore(l, found, true) || !ok && stage[1+i] != int64(0) {
				return false
			}
		}
	}
	return true
}

// neverPlace adds the place of a limit, from 0, to itemArgs.Never, if it belongs there.
func neverPlace(list []int, k int, item driver.Item, l limit.Limit) []int {
	switch {
	case l.Observe || !item.NeverFits(l, false) || len(list) > 0 && list[len(list)-1] > 0:
		return list
	case item.Fence != "" && !item.IsHold() && !item.NeverFits(l, true):
		return append(list, -k-1)
	}
	return append(list, k+1)
}
