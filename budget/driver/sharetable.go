package driver

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ShareTable is how a host divides a budget's limits into shares. A guarantee is promised
// where all hosts divide alike.
type ShareTable struct {
	// Host is the name of the caller's host, for people: 1 to MaxHostName characters without
	// blanks; empty: the table is not noted.
	Host string
	// Digest is limit.DigestShares of all limits of the budget.
	Digest string
}

// MaxHostName is how many characters of a host's name a ShareTable has.
const MaxHostName = 63

// TableNoted is how long a ledger notes a share table after a decision, in µs.
const TableNoted int64 = 3_600_000_000

// TableRenewed is the age in µs at which a noted share table is renewed.
const TableRenewed int64 = 60_000_000

// MaxTables is how many share tables a ledger distinguishes: the latest ones.
const MaxTables = 64

// NotedTable is a share table, and when it was first and last noted, in µs. A table that was
// forgotten in between is noted anew.
type NotedTable struct {
	ShareTable
	First, Last int64
}

// NotedTables are the share tables by which a budget was charged, in the order in which they
// were noted.
type NotedTables []NotedTable

// Noted returns the tables with one more, noted at now.
func (n NotedTables) Noted(table ShareTable, now int64) NotedTables {
	at := slices.IndexFunc(n, func(one NotedTable) bool { return one.ShareTable == table })
	if table.Host == "" || at >= 0 && now-n[at].Last < TableRenewed {
		return n
	}
	first, others := now, NotedTables(nil)
	for _, one := range n.Within(now) {
		if one.ShareTable == table {
			first = one.First
		} else {
			others = append(others, one)
		}
	}
	all := append(others, NotedTable{table, first, now})
	return all[max(0, len(all)-MaxTables):]
}

// Within returns the tables that were noted less than TableNoted before now.
func (n NotedTables) Within(now int64) (list NotedTables) {
	for _, one := range n {
		if one.Last > now-TableNoted {
			list = append(list, one)
		}
	}
	return list
}

// String is the tables as ParseTables reads them: "HOST DIGEST FIRST LAST" each.
func (n NotedTables) String() string {
	var words []string
	for _, one := range n {
		words = append(words, one.Host, one.Digest, strconv.FormatInt(one.First, 10), strconv.FormatInt(one.Last, 10))
	}
	return strings.Join(words, " ")
}

// ParseTables reads what String wrote.
func ParseTables(text string) (NotedTables, error) {
	words := strings.Fields(text)
	if len(words)%4 != 0 {
		return nil, fmt.Errorf("the share tables %q are not hosts, digests and two instants", text)
	}
	var n NotedTables
	for four := range slices.Chunk(words, 4) {
		first, err := strconv.ParseInt(four[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the share tables %q: %w", text, err)
		}
		last, err := strconv.ParseInt(four[3], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the share tables %q: %w", text, err)
		}
		n = append(n, NotedTable{ShareTable{four[0], four[1]}, first, last})
	}
	return n, nil
}
