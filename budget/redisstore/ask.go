package redisstore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/lua"
)

// The statuses in the replies of scripts on a ledger, as charge.lua lists them.
const (
	statusDone = iota
	statusAgain
	statusRegistry
	statusPeriods
	statusClock
	statusDamaged
	statusNewer
	statusLost
	statusDays
	statusPlans
)

// answer is a script's reply: status, clock, and the rest.
type answer struct {
	status int64
	now    int64
	rest   []any
	unsure bool // an earlier attempt got no answer and may have been applied
	unrun  bool // with an error: no attempt can have run
}

// ask runs a script on a ledger. If the script must run again with more knowledge, ask
// keeps the knowledge and the answer has the script's status. A status that ends the call
// becomes an error. See [Store.attempts] for args.
func (s *Store) ask(ctx context.Context, doing, name string, sc lua.Script, keys []string, args func(until time.Time) []any) (answer, error) {
	cmd, unsure := s.attempts(ctx, sc, boxed(keys), args)
	reply, err := cmd.Slice()
	if err != nil {
		return answer{unrun: !unsure && notRun(cmd.Err())}, s.fault(doing+" "+name, err)
	}
	if isOlderFormat(reply) {
		if err := s.convert(ctx, name); err != nil {
			return answer{}, err
		}
		return s.ask(ctx, doing, name, sc, keys, args)
	}
	a, err := s.read(doing, name, reply)
	a.unsure = unsure
	return a, err
}

// read checks and splits a reply, and turns statuses into errors, as ask says.
func (s *Store) read(doing, name string, reply []any) (answer, error) {
	if len(reply) < 2 || !replyHead(reply[:2]) {
		return answer{}, s.strange(doing+" "+name, reply)
	}
	a := answer{status: number(reply[0]), now: number(reply[1]), rest: reply[2:]}
	if rest, known := formOfRest[a.status]; known && !rest(a.rest) {
		return answer{}, s.strange(doing+" "+name, reply)
	}
	s.learnAt(name, a.now)
	switch a.status {
	case statusDone, statusAgain, statusPeriods, statusDays, statusPlans:
	case statusRegistry:
		s.remember(name, newRegistry(splitNames(text(a.rest, 0)), splitNames(text(a.rest, 1))))
	case statusClock:
		return answer{}, clockError(doing+" "+name, a.now)
	case statusDamaged:
		return answer{}, s.damaged(name, text(a.rest, 0))
	case statusLost:
		return answer{}, fmt.Errorf("%s %s in Redis: %w", doing, name, driver.ErrLost)
	case statusNewer:
		return answer{}, s.newer(name, text(a.rest, 0))
	}
	return a, nil
}

// clockError reports a jump of the server's clock, which shows an instant in µs.
func clockError(doing string, shows int64) error {
	return fmt.Errorf("%s in Redis: %w: it shows %s", doing, driver.ErrClock, time.UnixMicro(shows).UTC().Format(time.RFC3339))
}

// number reads an integer that a script sent, as a number or as text; 0 for anything else.
func number(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

// numberAt is the number at a place of a list; 0 if the list is shorter.
func numberAt(list []any, i int) int64 {
	if i >= len(list) {
		return 0
	}
	return number(list[i])
}

func text(list []any, i int) string {
	if i < len(list) {
		s, _ := list[i].(string)
		return s
	}
	return ""
}

// list is the list at a place of a list.
func list(v []any, i int) []any {
	if i >= len(v) {
		return nil
	}
	inner, _ := v[i].([]any)
	return inner
}

// lists are the lists within the list at a place of a list.
func lists(v []any, i int) [][]any {
	if i >= len(v) {
		return nil
	}
	outer, _ := v[i].([]any)
	inner := make([][]any, len(outer))
	for j := range outer {
		inner[j], _ = outer[j].([]any)
	}
	return inner
}

// labelText is the form in which an entry keeps its labels.
func labelText(l driver.Labels) string {
	return strings.Join([]string{l.Job, l.Region, l.Run}, "|")
}
