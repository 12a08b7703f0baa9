package redisstore

import (
	"strings"

	"github.com/quotactl/quotactl/budget/driver"
)

// ledgerTold is what charge.lua reports of a ledger as a whole.
type ledgerTold struct {
	mark   driver.Mark
	hosts  []notedHost // those that decided lately
	until  int64       // a loss holds charges back until then; 0: it does not
	tables driver.NotedTables
	plans  driver.Plans
}

// notedHost is a host, and when it was noted that it had decided.
type notedHost struct {
	id string
	at int64
}

// isTold checks its form: the ledger's id, its changes, the newest charge's id and time,
// hosts and instants alternating, until when a loss holds charges back, share tables, what
// a plan needs, records of what shares need, and up to when the ledger is there for sure.
var isTold = tuple(isText, count, isText, count, isHosts, count, isTables, isPlan, isPlans, count)

func isTables(v any) bool {
	text, ok := v.(string)
	_, err := driver.ParseTables(text)
	return ok && err == nil
}

func isPlans(v any) bool {
	text, ok := v.(string)
	_, err := driver.ParsePlans(text)
	return ok && err == nil
}

// tableOf is a share table as the script notes it; empty: there is none.
func tableOf(t driver.ShareTable) string {
	if t.Host == "" {
		return ""
	}
	return t.Host + " " + t.Digest
}

func isHosts(v any) bool {
	text, ok := v.(string)
	f := strings.Fields(text)
	for i := 1; i < len(f); i += 2 {
		ok = ok && count(f[i])
	}
	return ok && len(f)%2 == 0
}

// readTold reads a ledgerTold as of an instant.
func readTold(list []any, at int64) (t ledgerTold) {
	if len(list) == 0 { // this answer has none
		return t
	}
	t.mark = driver.Mark{Ledger: text(list, 0), Changes: numberAt(list, 1), ID: text(list, 2), At: numberAt(list, 3), Seen: at, Kept: numberAt(list, 9)}
	t.until = numberAt(list, 5)
	t.tables, _ = driver.ParseTables(text(list, 6)) // isTold has read it
	t.plans, _ = driver.ParsePlans(text(list, 8))
	f := strings.Fields(text(list, 4))
	for i := 1; i < len(f); i += 2 {
		t.hosts = append(t.hosts, notedHost{f[i-1], number(f[i])})
	}
	return t
}

// atWork is how many hosts are at work at an instant.
func (t ledgerTold) atWork(at int64) (n int) {
	for _, h := range t.hosts {
		if h.at > at-driver.HostNoted {
			n++
		}
	}
	return n
}

// holding is the number of hosts that the script takes into account after a loss: 1, so
// that the loss holds nothing back, if the host spends within its part.
func (b *batch) holding() int64 {
	if b.WithinPart {
		return 1
	}
	return max(b.Hosts, 1)
}

// gone are the ids of the ledgers that the caller knows to have lost something.
func (b *batch) gone() string {
	if b.lost == nil {
		return ""
	}
	return strings.Join(b.lost.Gone, ",")
}
