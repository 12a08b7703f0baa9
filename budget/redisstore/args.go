package redisstore

import (
	"encoding/json"

	"github.com/quotactl/quotactl/budget/driver"
)

// The arguments of the scripts. The first ARGV of a script is one of these structs as
// JSON; lua/args.lua makes a table with the same names of it, where a field that was
// left out is nil. No list is nil here, since JSON's null is no list there, and no
// number is above 2^53, up to which Lua is exact. Times are in µs, instants since the
// Unix epoch.

// arguments are the struct, and then texts that the server keeps byte for byte, as
// JSON holds nothing but UTF-8.
func arguments(named any, texts ...any) []any {
	packed, _ := json.Marshal(named) // of integers, booleans and strings
	return append([]any{packed}, texts...)
}

// ledgerArgs are what every script on a ledger takes.
type ledgerArgs struct {
	Sig string `json:"sig"` // of the operations, as the caller knows them
	Now int64  `json:"now"` // the caller's clock
}

// finishArgs are what finish.lua takes.
type finishArgs struct {
	ledgerArgs
	ID       string `json:"id"`
	Release  bool   `json:"release,omitempty"` // else it is settled
	Units    int64  `json:"units"`
	Deadline int64  `json:"deadline"` // on the server's clock
	Age      int64  `json:"age"`      // it ended that long ago
}

// lockArgs are what lock.lua takes; the reason is a text after them.
type lockArgs struct {
	ledgerArgs
	Name   string `json:"name"` // of the limit, or * for the budget
	Unlock bool   `json:"unlock,omitempty"`
	Till   int64  `json:"till"`            // 0: After counts
	After  int64  `json:"after"`           // past the later clock
	Most   int64  `json:"most"`            // past the later clock
	Force  bool   `json:"force,omitempty"` // takes the place of a lock that stands
}

// spentArgs are what spent.lua takes.
type spentArgs struct {
	ledgerArgs
	Steps int            `json:"steps"` // entries that one run may go through
	Span  int64          `json:"span"`  // 0: all that is held
	By    driver.GroupBy `json:"by"`
	Came  string         `json:"came"` // how far an earlier page came, or empty
}

// historyArgs are what job_history.lua takes, as Redis takes scores and places.
type historyArgs struct {
	From string `json:"from"`
	To   string `json:"to"`          // "(" and what it is below, or "+inf"
	Over int    `json:"over,string"` // so many of the first are passed over
	Most int    `json:"most,string"`
}

// swapArgs are what job_swap.lua takes; the texts after them are the new document,
// or an empty one, key and value of each value that is set, key of each that is
// removed, and instant, id and text of each record.
type swapArgs struct {
	Version  int64  `json:"version,string"` // that was read
	ID       string `json:"id"`             // of this swap, as long as all ids
	Deadline int64  `json:"deadline"`       // on the server's clock
	Put      bool   `json:"put,omitempty"`  // there is a new document
	Remove   bool   `json:"remove,omitempty"`
	Sets     int    `json:"sets"` // how many there are of each
	Removes  int    `json:"removes"`
	Records  int    `json:"records"`
	Before   int64  `json:"before,string"` // records of earlier instants are forgotten
	Most     int    `json:"most"`          // so many records are kept; 0: all
}

// chargeArgs are what charge.lua takes.
type chargeArgs struct {
	ledgerArgs
	Mode      purpose `json:"mode"`
	Steps     int     `json:"steps"`             // entries that one run may go through
	Observe   bool    `json:"observe,omitempty"` // locks of the budget refuse nothing
	Candidate string  `json:"candidate"`         // the id of a ledger that is begun
	// What the caller was told: the ledger's id or empty, its changes, and when; and
	// charges, the newest first, whose id is empty where there is none.
	Ledger  string       `json:"ledger"`
	Changes int64        `json:"changes"`
	Seen    int64        `json:"seen"`
	Told    []toldArgs   `json:"told"`
	Host    string       `json:"host"`  // the caller's, or empty
	Hosts   int64        `json:"hosts"` // that share the store; 1: no loss holds the items back
	Gone    string       `json:"gone"`  // ledgers' ids by comma, known to have lost something
	Add     []string     `json:"add"`   // operations to register
	Windows []windowArgs `json:"windows"`
	Meters  []meterArgs  `json:"meters"`
	Limits  []limitArgs  `json:"limits"`
	Items   []itemArgs   `json:"items"`
	Import  *importArgs  `json:"import,omitempty"`
}

// importArgs are a driver.Import. Most is how many exports are noted.
type importArgs struct {
	Export string    `json:"export"`
	Ledger string    `json:"ledger"`
	At     int64     `json:"at"`
	Born   int64     `json:"born"`
	Gone   int64     `json:"gone"`
	Locks  []lockRow `json:"locks"`
	From   int64     `json:"from"`
	Rows   []rowArgs `json:"rows"`
	Last   bool      `json:"last,omitempty"`
	Most   int       `json:"most"`
}

// lockRow is a lock of an exported ledger.
type lockRow struct {
	Name  string `json:"name"` // * for the budget
	Till  int64  `json:"till"`
	Since int64  `json:"since"`
	Why   string `json:"why"`
}

// rowArgs are a row of an exported ledger.
type rowArgs struct {
	ID       string `json:"id"`
	Op       int    `json:"op"`
	State    string `json:"state"` // as entries have it
	Asked    int64  `json:"asked"`
	Units    int64  `json:"units"`
	Calls    int64  `json:"calls"`
	Start    int64  `json:"start"`
	Score    int64  `json:"score"`
	Labels   string `json:"labels"`
	Observed bool   `json:"observed,omitempty"`
	Pseudo   bool   `json:"pseudo,omitempty"`
}

// exportArgs are what export.lua takes.
type exportArgs struct {
	Cursor string `json:"cursor"` // 0: the first page
	Count  int    `json:"count"`  // how many entries a page has, roughly
}

// toldArgs are a charge that the caller was told of.
type toldArgs struct {
	ID string `json:"id"`
	At int64  `json:"at"`
}

// windowArgs are a rolling or calendar window.
type windowArgs struct {
	Key     string `json:"key"`
	Longest int64  `json:"longest"`
	*periods
}

// periods are a calendar's around an instant: they begin at P0, P1 and P2, and up
// to the cuts nothing counts in the first two.
type periods struct {
	P0 int64 `json:"p0"`
	P1 int64 `json:"p1"`
	P2 int64 `json:"p2"`
	C0 int64 `json:"c0"`
	C1 int64 `json:"c1"`
}

// meterArgs are a bucket.
type meterArgs struct {
	Key      string `json:"key"`
	Patterns string `json:"patterns"` // of operations by comma, or -
	Longest  int64  `json:"longest"`
	Fill     int64  `json:"fill"` // how full it may be
}

// limitArgs are a limit, and what a run that decides nothing is to do with it: sumArgs,
// recoverArgs, reportArgs or nil.
type limitArgs struct {
	Window  int    `json:"window,omitempty"` // its place in the batch, from 1
	Bucket  int    `json:"bucket,omitempty"` // its meter's, where it has no window
	Calls   bool   `json:"calls,omitempty"`  // counts calls, else units
	Observe bool   `json:"observe,omitempty"`
	Covered []int  `json:"covered"` // the operations' numbers, in order
	Name    string `json:"name"`
	Task    any    `json:"task,omitempty"`
}

// sumArgs ask a look for the sum of scores above From and not above To.
type sumArgs struct {
	From int64  `json:"from"`
	To   int64  `json:"to"`
	Came string `json:"came"` // how far an earlier run came, "score:sum", or empty
}

// recoverArgs are what the caller saw of a limit before data was lost.
type recoverArgs struct {
	From int64  `json:"from"` // when it was seen
	Seen int64  `json:"seen"` // what was used then; below 0: not seen
	Came string `json:"came"` // how far an earlier run came, or empty
	Op   int    `json:"op"`   // the pseudo-operation's number
	Full int64  `json:"full"` // a bucket's limit
	ID   string `json:"id"`   // of the charge that records it
	Own  int64  `json:"own"`  // what the caller's host charged itself of it
	Mine string `json:"mine"` // the id of the charge for that
}

// reportArgs are what an upstream reported of a limit, as in driver.Report.
type reportArgs struct {
	At      int64  `json:"at"`
	Counted int64  `json:"counted"`
	Seen    int64  `json:"seen"`
	Reset   int64  `json:"reset"`
	After   int64  `json:"after"`
	Op      int    `json:"op"` // the pseudo-operation's number
	ID      string `json:"id"` // of the charge that records it
}

// unbound is the bound of a limit that does not check an item.
const unbound int64 = 1 << 53

// itemArgs are an item.
type itemArgs struct {
	ID       string  `json:"id"`
	Op       int     `json:"op"`
	Units    int64   `json:"units"`
	Lease    int64   `json:"lease"`
	Dry      bool    `json:"dry,omitempty"`      // decided, and not charged
	Deadline int64   `json:"deadline"`           // on the server's clock
	Age      *int64  `json:"age,omitempty"`      // it happened that long ago already
	Fence    string  `json:"fence,omitempty"`    // the lock that keeps it from being charged
	Labels   string  `json:"labels"`             // job|region|run
	Progress string  `json:"progress,omitempty"` // of a walk in an earlier run
	Bounds   []int64 `json:"bounds"`             // one a limit, or unbound
}
