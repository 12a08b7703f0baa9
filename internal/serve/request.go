package serve

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/internal/answer"
	"github.com/quotactl/quotactl/internal/suggest"
)

// The bounds of a request.
const (
	// MaxBody is the size of a request's body in bytes.
	MaxBody = 64 << 10
	// MaxWait bounds wait_seconds.
	MaxWait = time.Minute
	// minLease is the shortest useful lease.
	minLease = time.Second
	// maxFaults is how many faults an answer names; it only counts the others.
	maxFaults = 20
	// maxShown bounds how much of a wrong name an answer shows, and maxDetail what it
	// says about it, in bytes.
	maxShown  = 64
	maxDetail = 400
)

// fault is one mistake in a request's body, in the form of RFC 9457.
type fault struct {
	Pointer string `json:"pointer"` // to the member, as an RFC 6901 fragment
	Detail  string `json:"detail"`
}

// request is a body of any of the POST paths.
type request struct {
	budget string
	asked  answer.Asked
	wait   time.Duration
	waits  bool  // the request gave wait_seconds, even if 0; else the job's max_wait applies
	units  int64 // asked.Call.Units points here if the request gave units

	settles bool // units are what a call has cost

	given  uint // bit set of the members given, by their place among members
	faults []fault
	more   int // how many faults are not in faults
}

// The members that each path takes; the first members.required of them are required.
var (
	chargeMembers = members{required: 2, names: []string{
		"budget", "operation", "units", "id", "floor", "use_headroom", "job", "region", "run", "fence",
		"on_store_error", "wait_seconds", "lease_seconds", "dry_run",
	}}
	settleMembers  = members{required: 3, names: []string{"budget", "id", "units"}, settles: true}
	releaseMembers = members{required: 2, names: []string{"budget", "id"}}
)

// labels are the members that may be empty: a call without the label.
var labels = []string{"region", "run"}

type members struct {
	required int
	names    []string
	settles  bool // units are what a call has cost
}

func (m members) place(name []byte) int {
	for i, known := range m.names {
		if known == string(name) {
			return i
		}
	}
	return -1
}

// read parses a body. It returns an error if the body is not a JSON object; mistakes in
// its members go into faults.
func (q *request) read(body []byte, takes members) error {
	q.settles = takes.settles
	o, err := openObject(body)
	if err != nil {
		return err
	}
	var seen uint
	for name, value, ok := o.next(); ok; name, value, ok = o.next() {
		place := takes.place(name)
		switch {
		case place < 0:
			q.unknown(string(name), takes)
		case seen&(1<<place) != 0:
			q.fault(string(name), "it is given twice")
		case value[0] == 'n', string(value) == `""` && slices.Contains(labels, string(name)): // null counts as left out, and the variable of a job that is not set
		default:
			q.given |= 1 << place
			if wrong := q.set(string(name), value); wrong != "" {
				q.fault(string(name), wrong)
			}
		}
		if place >= 0 {
			seen |= 1 << place
		}
	}
	for i, name := range takes.names[:takes.required] {
		if q.given&(1<<i) == 0 {
			q.fault(name, "it is missing")
		}
	}
	if q.wait > 0 && q.asked.DryRun {
		q.fault("wait_seconds", "a dry_run never waits: leave out wait_seconds or dry_run")
	}
	return nil
}

// set reads one member. It returns what is wrong with its value, or "".
func (q *request) set(name string, value []byte) string {
	call := &q.asked.Call
	switch name {
	case "budget":
		return textOf(value, &q.budget)
	case "operation":
		return textOf(value, &call.Operation)
	case "units":
		call.Units = &q.units
		if q.settles {
			return costOf(value, &q.units)
		}
		return wholeOf(value, &q.units)
	case "id":
		return textOf(value, &call.ID)
	case "floor":
		wrong := wholeOf(value, &call.Floor)
		if wrong == "" && call.Floor == 0 {
			call.Floor = budget.NoFloor // 0 overrides the job's floor
		}
		return wrong
	case "use_headroom":
		return flagOf(value, &call.UseHeadroom)
	case "job":
		return textOf(value, &call.Labels.Job)
	case "region":
		return textOf(value, &call.Labels.Region)
	case "run":
		return textOf(value, &call.Labels.Run)
	case "fence":
		return wholeOf(value, &call.Fence)
	case "on_store_error":
		return textOf(value, (*string)(&call.OnStoreError))
	case "wait_seconds":
		q.waits = true
		return spanOf(value, 0, MaxWait, &q.wait)
	case "lease_seconds":
		return spanOf(value, minLease, budget.MaxLease, &q.asked.Lease)
	case "dry_run":
		return flagOf(value, &q.asked.DryRun)
	}
	return "there is no such member"
}

// unknown notes an unknown member.
func (q *request) unknown(name string, takes members) {
	meant := ""
	if len(q.faults) < maxFaults { // the others are only counted
		meant = suggest.DidYouMean(cut(name, maxShown), slices.Clone(takes.names))
	}
	q.fault(name, "there is no such member"+meant)
}

// fault notes a mistake in a member.
func (q *request) fault(name, detail string) {
	if len(q.faults) == maxFaults {
		q.more++
		return
	}
	pointer := strings.NewReplacer("~", "~0", "/", "~1").Replace(cut(name, maxShown))
	q.faults = append(q.faults, fault{"#/" + pointer, cut(detail, maxDetail)})
}

// judge checks each member's value alone with [budget.Call.Validate] and notes what is
// wrong.
func (q *request) judge() {
	call := q.asked.Call
	q.judgeCall("id", budget.Call{ID: call.ID})
	if call.Operation != "" { // read has noted a missing one
		q.judgeCall("operation", budget.Call{Operation: call.Operation})
	}
	q.judgeCall("job", budget.Call{Labels: budget.Labels{Job: call.Labels.Job}})
	q.judgeCall("region", budget.Call{Labels: budget.Labels{Region: call.Labels.Region}})
	q.judgeCall("run", budget.Call{Labels: budget.Labels{Run: call.Labels.Run}})
	fenced := budget.Call{Fence: call.Fence}
	if call.Labels.Job != "" { // its own mistakes are noted above
		fenced.Labels.Job = "any"
	}
	q.judgeCall("fence", fenced)
	q.judgeCall("on_store_error", budget.Call{OnStoreError: call.OnStoreError})
	q.judgeCall("units", budget.Call{Units: call.Units})
	q.judgeCall("floor", budget.Call{Floor: call.Floor})
}

// judgeCall notes what is wrong with a call that has only the named member.
func (q *request) judgeCall(name string, alone budget.Call) {
	if alone.Operation == "" {
		alone.Operation = "any"
	}
	if err := alone.Validate(0); err != nil {
		q.fault(name, withoutSentinel(err))
	}
}

// withoutSentinel is an error's text without its sentinel's.
func withoutSentinel(err error) string {
	text := err.Error()
	for _, sentinel := range []error{budget.ErrInvalid, budget.ErrTooManyUnits} {
		if errors.Is(err, sentinel) {
			text = strings.TrimPrefix(text, sentinel.Error()+": ")
		}
	}
	return text
}

// detail lists all faults in one line.
func (q *request) detail() string {
	parts := make([]string, 0, len(q.faults)+1)
	for _, f := range q.faults {
		parts = append(parts, strings.TrimPrefix(f.Pointer, "#/")+": "+f.Detail)
	}
	if q.more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", q.more))
	}
	return strings.Join(parts, "; ")
}

// cut shortens a text that a client chose.
func cut(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
