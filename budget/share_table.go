package budget

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
)

// OtherShares are a host that charged within the last hour, but divides the limits into other
// shares than this budget's, or into none. What is guaranteed holds only where all hosts have
// the same shares.
type OtherShares struct {
	Host string
	// None: it divides no limit.
	None bool
	// Last is when it last charged so, to the minute.
	Last time.Time
}

// shareTable is how this host divides limits.
func shareTable(limits []limit.Limit) driver.ShareTable {
	return driver.ShareTable{Host: hostName(), Digest: limit.DigestShares(limits)}
}

// hostName is the host's name, in characters that a ledger can note.
func hostName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "unknown"
	}
	plain := strings.Map(func(r rune) rune {
		if driver.ValidName(string(r)) || strings.ContainsRune("._-", r) {
			return r
		}
		return '_'
	}, name)
	return plain[:min(len(plain), driver.MaxHostName)]
}

// others are the tables that differ from a host's own. A host that had another one, and
// since then only this, has changed to it.
func others(tables driver.NotedTables, own string) (list []OtherShares) {
	for _, one := range tables {
		changed := slices.ContainsFunc(tables, func(later driver.NotedTable) bool {
			return later.Host == one.Host && later.Digest == own && later.First > one.Last
		})
		if one.Digest != own && !changed {
			list = append(list, OtherShares{Host: one.Host, None: one.Digest == limit.NoShares, Last: time.UnixMicro(one.Last).UTC()})
		}
	}
	return list
}
