package redisstore

import (
	"encoding/json"

	"github.com/quotactl/quotactl/budget/driver"
)

// The arguments of the scripts. The first ARGV of a script is one of these structs as
// JSON. lua/args.lua turns it into a table with the same names; an omitted field is nil.
// No list may be nil here, since JSON's null is not a list in Lua, and no number may
// exceed 2^53, up to which Lua is exact. Times are in µs, instants since the Unix epoch.

// arguments returns the struct as JSON, followed by texts that the server keeps byte for
// byte: JSON can only hold UTF-8.
func arguments(named any, texts ...any) []any {
	packed, _ := json.Marshal(named) // of integers, booleans and strings
	return append([]any{packed}, texts...)
}

// ledgerArgs are the arguments of every script on a ledger.
type ledgerArgs struct {
	Sig string `json:"sig"` // the signature of the operations that the caller knows
	Now int64  `json:"now"` // the caller's clock
	historyArgs
}

// historyArgs are for how long history is kept (µs; 0: there is none), and the days of
// which the script gets the keys.
type historyArgs struct {
	Kept int64   `json:"kept,omitempty"`
	Days []int64 `json:"days,omitempty"`
}

// historyReadArgs are the arguments of history_read.lua.
type historyReadArgs struct {
	ledgerArgs
	Cursor string `json:"cursor"` // where the first of the days continues; 0: at its beginning
	Most   int    `json:"most"`   // roughly how many fields to read
}

// refusedArgs are the arguments of refused.lua.
type refusedArgs struct {
	ledgerArgs
	Rows []refusalArgs `json:"rows"`
}

// refusalArgs are a row of driver.Refusals: an hour, the series, and how many calls.
type refusalArgs struct {
	Hour   int64  `json:"hour"`
	Series string `json:"series"`
	Calls  int64  `json:"calls"`
}

// finishArgs are the arguments of finish.lua.
type finishArgs struct {
	ledgerArgs
	Items []finishItemArgs `json:"items"`
}

type finishItemArgs struct {
	ID       string `json:"id"`
	Release  bool   `json:"release,omitempty"` // else settle
	Units    int64  `json:"units"`
	Deadline int64  `json:"deadline"` // on the server's clock
	Age      int64  `json:"age"`      // the reservation ended this long ago
}

// lockArgs are the arguments of lock.lua; the reason follows as a text.
type lockArgs struct {
	ledgerArgs
	Name   string `json:"name"` // the limit's name, or * for the budget
	Unlock bool   `json:"unlock,omitempty"`
	Till   int64  `json:"till"`            // 0: After counts
	After  int64  `json:"after"`           // past the later clock
	Most   int64  `json:"most"`            // past the later clock
	Force  bool   `json:"force,omitempty"` // replaces an existing lock
}

// holdArgs are the arguments of hold.lua. With a lease (µs), all holds of the fence are renewed,
// else the region's is ended.
type holdArgs struct {
	ledgerArgs
	Fence  string `json:"fence"`
	Region string `json:"region"`
	Lease  int64  `json:"lease"`
}

// planArgs are the arguments of plan.lua. Without New, it only reads.
type planArgs struct {
	ledgerArgs
	Old string  `json:"old"`
	New *string `json:"new,omitempty"`
}

// spentArgs are the arguments of spent.lua.
type spentArgs struct {
	ledgerArgs
	Steps int            `json:"steps"` // entries that one run may read
	Span  int64          `json:"span"`  // 0: everything the ledger holds
	By    driver.GroupBy `json:"by"`
	Run   string         `json:"run"`  // the run whose entries count; empty: all do
	Came  string         `json:"came"` // where the page before ended, or empty
}

// entriesArgs are the arguments of entries.lua.
type entriesArgs struct {
	ledgerArgs
	Steps int    `json:"steps"` // entries that one run may read
	Zsets []int  `json:"zsets"` // their places among the ledger's keys, from 1 after x
	Above int64  `json:"above"` // the score above which to begin
	Came  string `json:"came"`  // where the page before ended, or empty
}

// jobHistoryArgs are the arguments of job_history.lua, in Redis's syntax for ranges of scores.
type jobHistoryArgs struct {
	From string `json:"from"`
	To   string `json:"to"`          // "(" and an exclusive bound, an inclusive bound, or "+inf"
	Over int    `json:"over,string"` // how many records to skip
	Most int    `json:"most,string"`
}

// swapArgs are the arguments of job_swap.lua. These texts follow: the new document or an
// empty text, key and value of each value to set, the key of each value to remove, and
// instant, id and text of each record.
type swapArgs struct {
	Version  int64  `json:"version,string"` // the version that was read
	ID       string `json:"id"`             // this swap's id; all ids have the same length
	Deadline int64  `json:"deadline"`       // on the server's clock
	Put      bool   `json:"put,omitempty"`  // there is a new document
	Remove   bool   `json:"remove,omitempty"`
	Sets     int    `json:"sets"` // Sets, Removes and Records: how many there are of each
	Removes  int    `json:"removes"`
	Records  int    `json:"records"`
	Before   int64  `json:"before,string"` // forget records of earlier instants
	Most     int    `json:"most"`          // how many records to keep; 0: all
}

// chargeArgs are the arguments of charge.lua.
type chargeArgs struct {
	ledgerArgs
	Mode      purpose `json:"mode"`
	Steps     int     `json:"steps"`             // entries that one run may read
	Block     int64   `json:"block"`             // how many entries a block is to have
	Tidy      []int   `json:"tidy"`              // operations whose entries may be enough for a block
	Observe   bool    `json:"observe,omitempty"` // locks on the whole budget refuse nothing
	Candidate string  `json:"candidate"`         // the id for a new ledger
	// The caller's mark: the ledger's id or empty, its changes, and when it was seen; then
	// the mark's charge and those of further marks. The id is empty if there is no charge.
	Ledger  string       `json:"ledger"`
	Changes int64        `json:"changes"`
	Seen    int64        `json:"seen"`
	Idle    int64        `json:"idle"` // up to when that ledger was kept for sure; 0: not known
	Told    []toldArgs   `json:"told"`
	Host    string       `json:"host"`              // the caller's host, or empty
	Hosts   int64        `json:"hosts"`             // how many share the store; 1: a loss holds no items back
	Table   string       `json:"table"`             // the caller's share table "host digest", or empty
	Gone    string       `json:"gone"`              // ids of ledgers that have lost something, joined by commas
	Add     []string     `json:"add"`               // operations and pairs to register
	Split   []string     `json:"split"`             // patterns of jobs that are to be counted apart from now on
	Divided bool         `json:"divided,omitempty"` // a limit has shares
	Plans   *string      `json:"plans,omitempty"`   // the records that the limits' spells are by; nil: there is none
	Windows []windowArgs `json:"windows"`
	Meters  []meterArgs  `json:"meters"`
	Limits  []limitArgs  `json:"limits"`
	Covers  [][2]int     `json:"covers"`          // limits that need a running total, and 0 or the share that does, from 1
	Spent   string       `json:"spent,omitempty"` // what the items add to the history if all are charged
	Items   []itemArgs   `json:"items"`
	Import  *importArgs  `json:"import,omitempty"`
}

// importArgs are a driver.Import. Most is how many exports the ledger remembers.
type importArgs struct {
	Export  string    `json:"export"`
	Ledger  string    `json:"ledger"`
	At      int64     `json:"at"`
	Born    int64     `json:"born"`
	Gone    int64     `json:"gone"`
	Unnoted int64     `json:"unnoted"`
	Locks   []lockRow `json:"locks"`
	From    int64     `json:"from"`
	Rows    []rowArgs `json:"rows"`
	Last    bool      `json:"last,omitempty"`
	Most    int       `json:"most"`
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
	State    string `json:"state"` // the letter that entries use, or h for a row of history, whose Labels are its series
	Asked    int64  `json:"asked"`
	Units    int64  `json:"units"`
	Calls    int64  `json:"calls"`
	Start    int64  `json:"start"`
	Score    int64  `json:"score"`
	Labels   string `json:"labels"`
	Observed bool   `json:"observed,omitempty"`
	Pseudo   bool   `json:"pseudo,omitempty"`
	AsOf     int64  `json:"asOf"` // of a row of history
}

// exportArgs are the arguments of export.lua.
type exportArgs struct {
	Cursor string `json:"cursor"` // 0: the first page
	Count  int    `json:"count"`  // roughly how many entries to read
}

// toldArgs are a charge that an earlier answer showed the caller.
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

// periods are three periods of a calendar around an instant. They begin at P0, P1 and P2.
// In the first two, entries up to C0 and C1 do not count.
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
	Patterns string `json:"patterns"` // of operations, joined by commas, or -
	Longest  int64  `json:"longest"`
	Fill     int64  `json:"fill"` // the bucket's size
}

// limitArgs are a limit. Task is sumArgs, recoverArgs or reportArgs in a run for that
// purpose, else nil.
type limitArgs struct {
	Window   int    `json:"window,omitempty"` // its window's place in Windows, from 1
	Bucket   int    `json:"bucket,omitempty"` // for a bucket, its place in Meters, from 1
	Calls    bool   `json:"calls,omitempty"`  // it counts calls, else units
	Observe  bool   `json:"observe,omitempty"`
	Covered  []int  `json:"covered"` // the numbers of the operations it counts, in order
	Name     string `json:"name"`
	Shortest int64  `json:"shortest,omitempty"` // it counts the holds of passes that take no longer than this
	Task     any    `json:"task,omitempty"`

	// Only for a limit with shares: these, and for a calendar its lapses, the longest first,
	// its guard, and the place of what counts after the reset in Windows if it checks that.
	Shares []shareArgs `json:"shares,omitempty"`
	Lapses []int64     `json:"lapses,omitempty"`
	Guard  int64       `json:"guard,omitempty"`
	Next   int         `json:"next,omitempty"`
	Spells []spellArgs `json:"spells,omitempty"` // by records of what its shares need
}

// spellArgs are a limit.Spell.
type spellArgs struct {
	Until int64   `json:"until"`
	Units []int64 `json:"units"`
}

// shareArgs are a share of a limit.
type shareArgs struct {
	Units int64    `json:"units"` // what it is guaranteed, in what the limit counts
	Lapse int64    `json:"lapse"`
	Ops   []int    `json:"ops"`  // the numbers of its pairs that the limit counts
	Jobs  []string `json:"jobs"` // the patterns of its jobs
}

// sumArgs ask a look for the sum of entries with scores above From and up to To.
type sumArgs struct {
	From int64  `json:"from"`
	To   int64  `json:"to"`
	Came string `json:"came"` // where the run before ended, "score:sum", or empty
}

// recoverArgs are what the caller saw of a limit before the loss.
type recoverArgs struct {
	From int64  `json:"from"` // when the caller saw it
	Seen int64  `json:"seen"` // what was used then; below 0: not seen
	Came string `json:"came"` // where the run before ended, or empty
	Op   int    `json:"op"`   // the pseudo-operation's number
	Full int64  `json:"full"` // a bucket's limit
	ID   string `json:"id"`   // of the charge that records it
	Own  int64  `json:"own"`  // the part of it that the caller's host charged itself
	Mine string `json:"mine"` // the id of the charge that records Own
}

// reportArgs are an upstream's report on a limit, as in driver.Report.
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
	Dry      bool    `json:"dry,omitempty"`      // decide, and do not charge
	Deadline int64   `json:"deadline"`           // on the server's clock
	Age      *int64  `json:"age,omitempty"`      // record it: it happened this long ago
	Fence    string  `json:"fence,omitempty"`    // the lock that would refuse it
	Labels   string  `json:"labels"`             // job|region|run
	Progress string  `json:"progress,omitempty"` // where a walk in the run before ended
	Bounds   []int64 `json:"bounds"`             // for each limit its bound, or unbound
	// Never are the places, from 1, of limits that the item never fits: up to the first that holds
	// do not change, and below 0 those that it may fit if it draws all that it takes there.
	Never []int `json:"never,omitempty"`
	// If a limit has shares, for each limit which of its shares is the item's, from 1, and,
	// for an item with a floor, its bound without that. Rooms are there too for an item with a
	// fence, which may draw from a hold.
	Own   []int   `json:"own,omitempty"`
	Rooms []int64 `json:"rooms,omitempty"`

	Name string `json:"name,omitempty"` // the operation, of an item with a fence
	From int64  `json:"from,omitempty"` // the first stage to answer for; Progress is of that one
	// Only for a hold: its needs, how long its pass may take, and what it takes of each limit.
	Needs   []needArgs `json:"needs,omitempty"`
	Span    int64      `json:"span,omitempty"`
	Amounts []int64    `json:"amounts,omitempty"`
}

// needArgs are a need of a hold.
type needArgs struct {
	Op    int    `json:"op"`
	Name  string `json:"name"`
	Units int64  `json:"units"`
	Calls int64  `json:"calls"`
}
