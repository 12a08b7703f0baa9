package plan

import "container/heap"

// events is a queue of what happens, by its instant. What happens at one instant comes in the
// order of the jobs and of the regions of a pass, and else as it was added.
type events struct {
	now  int64
	list eventList
	seq  int64
}

type event struct {
	at    int64
	order int64
	seq   int64
	do    func()
}

// The orders of what is no job's: samples come before all else, looks for deferred passes after.
const (
	samplesFirst int64 = -1
	looksLast    int64 = 1 << 62
	// waitersLater is added to the orders of what waits for units: what begins then comes first.
	waitersLater int64 = 1 << 50
)

// add has something done at an instant, now if that is past.
func (e *events) add(at, order int64, do func()) {
	e.seq++
	heap.Push(&e.list, event{max(at, e.now), order, e.seq, do})
}

// run does everything up to an instant, and reports whether there is more.
func (e *events) run(until int64) (more bool) {
	for len(e.list) > 0 && e.list[0].at <= until {
		next := heap.Pop(&e.list).(event) // it is an eventList
		e.now = next.at
		next.do()
	}
	return len(e.list) > 0
}

type eventList []event

func (l eventList) Len() int { return len(l) }
func (l eventList) Less(i, j int) bool {
	a, b := &l[i], &l[j]
	switch {
	case a.at != b.at:
		return a.at < b.at
	case a.order != b.order:
		return a.order < b.order
	}
	return a.seq < b.seq
}
func (l eventList) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l *eventList) Push(x any)   { *l = append(*l, x.(event)) }
func (l *eventList) Pop() any {
	last := len(*l) - 1
	x := (*l)[last]
	(*l)[last] = event{}
	*l = (*l)[:last]
	return x
}
