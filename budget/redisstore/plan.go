package redisstore

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/lua"
)

// A plan is what usual.lua must know to decide charges by some limits: where their sums are
// among the packed numbers of the ledger. charge.lua answers with what is needed for it, and
// usual.lua compares the head of the state, so that a plan that no longer holds only costs
// another run. It is immutable but for its operations.
type plan struct {
	limits   []limit.Limit
	registry registry
	windows  []plannedWindow // the live windows, in the order of the state
	meters   []plannedMeter  // the buckets, likewise
	covers   int
	sums     []sumPlace // for each limit
	// until is when the first calendar's period ends, or the keys' use, the host or its table are
	// to be noted again; and next up to which score calendars
	// count nothing in their next period.
	until, next int64
	day         int64 // of the history
	told        ledgerTold
	host        string
	table       driver.ShareTable
	made        time.Time

	// What the script is given each time: keys, and the fields of the rows, by operation from 1.
	argM, argE, argLog, argHead any
	fields                      []any

	mu         sync.Mutex
	operations map[charge]int // their numbers; 0: not registered yet
	known      map[alike]usualTexts
	// refused has the fewest units that were refused, of calls that charge.lua decided. It
	// tells again that they are, and when no more, so that usual.lua need not be asked.
	refused map[caller]int64
}

// alike is what items have in common whose entries differ by id, time and labels alone.
type alike struct {
	operation int
	units     int64
	open      bool
}

// usualTexts are the key of the zset of such items, and how their members and entries begin.
type usualTexts struct{ key, member, entry any }

// sumPlace is where the use of a limit is: in the row of one operation, or else in the state.
type sumPlace struct {
	place, operation int
	window           int // from 1
	calls            bool
	shares           []sharePlace
}

// sharePlace is where the use of a share is, what it is guaranteed, and until when.
type sharePlace struct {
	place        int
	units, until int64
}

// The numbers of a state and of a row, as lua/layout.lua has them.
const (
	stateNumbers  = 10
	windowNumbers = 7
	coverNumbers  = 3
	meterNumbers  = 3
	rowNumbers    = 5
	totalNumbers  = 6
	never         = 9_000_000_000_000_000
)

// planAge is how long a plan serves: after that charge.lua decides once, which notes the host,
// and compares all entries with their count.
const planAge = 30 * time.Second

// hostAnew is how long after charge.lua has noted a host it notes it again, in µs.
const hostAnew = 3_600_000_000

// The keys are kept for an hour at least after nothing counts any more. charge.lua notes their use
// up to 15 minutes late. usual.lua, which does not note it, charges for keptAnew µs after that, at
// most ten minutes ahead of last seen, with leases up to usualLease.
const keptAnew, usualLease = 900_000_000, 1_200_000_000

// maxPlans is how many plans of one ledger a store keeps.
const maxPlans = 16

// plans are those of one ledger, the newest first.
type plans struct{ list []*plan }

// coversOf are the limits, and shares of limits, whose sum is to be kept as a running total:
// those over several operations but not all.
func coversOf(limits []limitArgs, operations int) [][2]int {
	list := [][2]int{}
	for i, l := range limits {
		if l.Window == 0 {
			continue
		}
		if n := len(l.Covered); n != operations && n != 1 {
			list = append(list, [2]int{i + 1, 0})
		}
		for j := range l.Shares {
			list = append(list, [2]int{i + 1, j + 1})
		}
	}
	return list
}

// plan returns the plan for the open items, or nil if charge.lua is to decide them.
func (b *batch) plan() *plan {
	if b.mode != deciding || b.slow || len(b.Items) == 0 || len(b.Limits) == 0 {
		return nil
	}
	for i := range b.Items {
		if b.Items[i].DryRun || b.Items[i].Recorded || b.Items[i].IsHold() {
			return nil
		}
	}
	if 4*time.Duration(b.store.pace.trip.Load()) > b.store.timeout { // there may be no time for two runs
		return nil
	}
	p := b.store.planFor(b.Batch)
	if p == nil || !slices.ContainsFunc(b.open, func(i int) bool { return !p.refuses(&b.Items[i]) }) {
		return nil
	}
	return p
}

// planFor returns a plan for a batch, or nil.
func (s *Store) planFor(b driver.Batch) *plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.plans[b.Budget]
	if known == nil {
		return nil
	}
	for _, p := range known.list {
		if b.Mark.Ledger != "" && b.Mark.Ledger != p.told.mark.Ledger { // charge.lua tells whether that is a loss
			continue
		}
		if sameLimits(p.limits, b.Limits) && p.host == b.Host && p.table == b.Table && time.Since(p.made) < planAge {
			return p
		}
	}
	return nil
}

// drop forgets a plan that does not hold any more.
func (s *Store) drop(name string, p *plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.plans[name]; known != nil {
		known.list = slices.DeleteFunc(slices.Clone(known.list), func(q *plan) bool { return q == p })
	}
}

// keepPlan makes a plan from what charge.lua answered, if that is enough for one.
func (b *batch) keepPlan(told []any, r registry) {
	if b.mode != deciding || len(told) == 0 || text(told, 0) == "" {
		return
	}
	p := &plan{
		limits: cloneLimits(b.Limits), registry: r, covers: int(numberAt(told, 2)), told: b.told,
		until: b.seen + keptAnew, next: never, day: b.seen / historyDay, host: b.Host, table: b.Table, made: time.Now(), operations: map[charge]int{}, known: map[alike]usualTexts{},
		argM: b.store.key(b.Budget, "m"), argE: b.store.key(b.Budget, "e"), argLog: b.store.key(b.Budget, "l:"+strconv.FormatInt(b.seen/historyDay, 10)),
		argHead: text(told, 0), fields: make([]any, 1+len(r.names)),
	}
	for no := range p.fields {
		p.fields[no] = "o" + strconv.Itoa(no)
	}
	var args chargeArgs
	args.shape(p.limits, b.seen)
	for i, l := range p.limits {
		args.Limits[i].Covered = r.covered(l)
	}
	args.divide(p.limits, r)
	keys := strings.Fields(text(told, 1))
	for _, key := range keys {
		w, ok := parseWindow(key)
		if !ok {
			return
		}
		w.used = slices.ContainsFunc(args.Windows, func(a windowArgs) bool { return a.Key == key })
		p.windows = append(p.windows, w)
	}
	for _, bucket := range list(told, 4) {
		m, ok := parseMeter(bucket.(string))
		if !ok {
			return
		}
		p.meters = append(p.meters, m)
	}
	for _, w := range args.Windows {
		if w.periods != nil {
			p.until = min(p.until, w.P1)
		}
	}
	for _, h := range b.told.hosts {
		if h.id == b.Host {
			p.until = min(p.until, h.at+hostAnew)
		}
	}
	for _, l := range p.limits {
		for _, s := range l.Shares {
			for _, record := range s.Planned {
				if record.Until > b.seen {
					p.until = min(p.until, record.Until)
				}
			}
		}
	}
	for _, t := range b.told.tables {
		if t.ShareTable == b.Table {
			p.until = min(p.until, t.Last+driver.TableRenewed)
		}
	}
	if !p.place(args, keys, list(told, 3), b.seen) {
		return
	}
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	known := remembered(b.store.plans, b.Budget, maxLedgers)
	var earlier *plan
	rest := slices.DeleteFunc(slices.Clone(known.list), func(q *plan) bool {
		same := q.host == p.host && q.table == p.table && sameLimits(p.limits, q.limits)
		if same {
			earlier = q
		}
		return same
	})
	p.note(earlier, b.Items, b.decided.Items)
	known.list = append([]*plan{p}, rest[:min(len(rest), maxPlans-1)]...)
}

// place finds where each limit's use is, and that of its shares. It returns false if one of
// them has no place.
func (p *plan) place(args chargeArgs, keys []string, covers []any, seen int64) bool {
	asked := coversOf(args.Limits, len(p.registry.names))
	if len(covers) != len(asked) {
		return false
	}
	coverAt := func(limit, share int, calls bool) int {
		no := int(numberAt(covers, slices.Index(asked, [2]int{limit, share})))
		if no == 0 || no > p.covers {
			return 0
		}
		return stateNumbers + windowNumbers*len(p.windows) + coverNumbers*(no-1) + column(calls)
	}
	for i, l := range args.Limits {
		if l.Window == 0 {
			no := slices.IndexFunc(p.meters, func(m plannedMeter) bool { return m.key == args.Meters[l.Bucket-1].Key })
			if no < 0 {
				return false
			}
			p.sums = append(p.sums, sumPlace{place: p.size() - meterNumbers*(len(p.meters)-no) + 1})
			continue
		}
		window := args.Windows[l.Window-1]
		at := sumPlace{window: 1 + slices.Index(keys, window.Key), calls: l.Calls}
		switch {
		case at.window == 0:
			return false
		case len(l.Covered) == len(p.registry.names):
			at.place = stateNumbers + windowNumbers*(at.window-1) + column(l.Calls)
		case len(l.Covered) == 1:
			at.operation = l.Covered[0]
		default:
			if at.place = coverAt(i+1, 0, l.Calls); at.place == 0 {
				return false
			}
		}
		inForce := p.limits[i].InForce(seen)
		for j, s := range l.Shares {
			if p.limits[i].Shares[j].Plan {
				s.Units = inForce[j]
			}
			share := sharePlace{place: coverAt(i+1, j+1, l.Calls), units: s.Units, until: never}
			if share.place == 0 {
				return false
			}
			if window.periods != nil && s.Lapse > 0 {
				share.until = window.P1 - l.Guard - s.Lapse
			}
			at.shares = append(at.shares, share)
		}
		if l.Next > 0 {
			p.next = min(p.next, args.Windows[l.Next-1].C0)
		}
		p.sums = append(p.sums, at)
	}
	return p.size()+p.stride() <= lua.MaxNumbers
}

// column is which of a sum's numbers counts units, or calls.
func column(calls bool) int {
	if calls {
		return 2
	}
	return 1
}

// size is how many numbers the state has, and stride how many a row.
func (p *plan) size() int {
	return stateNumbers + windowNumbers*len(p.windows) + coverNumbers*p.covers + meterNumbers*len(p.meters)
}
func (p *plan) stride() int { return rowNumbers + totalNumbers*len(p.windows) }

// maxOperations is how many pairs of an operation and a job a plan remembers.
const maxOperations = 1 << 12

// operation is the number under which an item counts; 0: the ledger does not know it yet.
func (p *plan) operation(item *driver.Item) int {
	of := charge{item.Operation, item.Labels.Job}
	p.mu.Lock()
	defer p.mu.Unlock()
	no, known := p.operations[of]
	if !known {
		if _, added := p.registry.withCharges([]charge{of}); len(added) == 0 {
			no = p.registry.number(of.operation, of.job)
		}
		if len(p.operations) >= maxOperations {
			clear(p.operations)
		}
		p.operations[of] = no
	}
	return no
}

// texts are the texts of an item that counts under an operation.
func (p *plan) texts(b *batch, operation int, item *driver.Item) usualTexts {
	of := alike{operation, item.Units, item.Lease > 0}
	p.mu.Lock()
	defer p.mu.Unlock()
	t, known := p.known[of]
	if !known {
		units, no, kind, state := strconv.FormatInt(item.Units, 10), strconv.Itoa(operation), "z:", "p"
		if item.Units == 0 {
			kind = "y:"
		}
		if of.open {
			state = "o"
		}
		t = usualTexts{b.store.key(b.Budget, kind+no), units + ":", strings.Join([]string{"1", no, units, "", state, ""}, "|")}
		if len(p.known) >= maxOperations {
			clear(p.known)
		}
		p.known[of] = t
	}
	return t
}

// cloneLimits copies limits, since a caller may change its own.
func cloneLimits(limits []limit.Limit) []limit.Limit {
	list := slices.Clone(limits)
	for i, l := range list {
		list[i].Operations, list[i].Shares = slices.Clone(l.Operations), slices.Clone(l.Shares)
		for j, s := range list[i].Shares {
			list[i].Shares[j].Jobs = slices.Clone(s.Jobs)
		}
	}
	return list
}

// sameLimits reports whether limits count alike: all but what a plan does not depend on.
func sameLimits(a, b []limit.Limit) bool {
	return slices.EqualFunc(a, b, func(a, b limit.Limit) bool {
		return a.Name == b.Name && a.Counts == b.Counts && a.Window.Kind == b.Window.Kind && a.Window.Length == b.Window.Length &&
			a.Window.Precision == b.Window.Precision && a.Window.Refill == b.Window.Refill && a.Window.Guard == b.Window.Guard && a.Window.Next == b.Window.Next &&
			(a.Window.Calendar == b.Window.Calendar || a.Window.Key() == b.Window.Key()) && slices.Equal(a.Operations, b.Operations) &&
			(len(a.Shares) == 0 && len(b.Shares) == 0 || a.Limit == b.Limit) &&
			slices.EqualFunc(a.Shares, b.Shares, func(a, b limit.Share) bool {
				return a.Name == b.Name && a.Guarantee == b.Guarantee && a.Lapse == b.Lapse && a.Plan == b.Plan && slices.Equal(a.Planned, b.Planned) && slices.Equal(a.Jobs, b.Jobs)
			})
	})
}

// appendNumbers appends numbers as doubles, as scripts unpack them.
func appendNumbers(to []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		bits := math.Float64bits(float64(n))
		to = append(to, byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24), byte(bits>>32), byte(bits>>40), byte(bits>>48), byte(bits>>56))
	}
	return to
}
