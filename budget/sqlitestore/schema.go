package sqlitestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/quotactl/quotactl/budget/driver"
)

// schemaVersion is what this version of the program reads and writes.
const schemaVersion = 12

// entriesConverted is the first version with entries of today's form: see convert.go.
const entriesConverted = 10

// applicationID marks SQLite files as ours: "qctl".
const applicationID = 0x7163746c

// schema creates the tables. All instants are µs of the store's clock.
//
// An entry's score is the instant it finishes: its time for a plain charge, the
// lease's end while a reservation is open. Its lane is the number of its operation, or of
// the pair of that and its job (see split.go), times four, plus its class: 0 has units, 1 has none, 2 was released. Walks, expiry
// and the building of totals read entries lane by lane, and skip those that a sum covers.
//
// A total counts the entries of one lane with scores above cut and up to built.
//
// Nothing more is needed where charges are to be counted by another label or in further
// meters: what is counted apart is a lane, by the name of its operation; a meter is a window
// of its own, by its key; and what an entry counts in further meters goes to its column more.
const schema = `
CREATE TABLE budget (
	b INTEGER PRIMARY KEY AUTOINCREMENT,
	name TEXT UNIQUE,            -- null: idle and being deleted
	version INTEGER NOT NULL,    -- of all that is kept of the budget
	born INTEGER NOT NULL,       -- the first decision
	last INTEGER NOT NULL,       -- last seen
	newest INTEGER NOT NULL,     -- the newest entry's time
	gone INTEGER NOT NULL,       -- entries of scores up to here are forgotten
	n INTEGER NOT NULL,          -- entries, the forgotten that still lie there included
	units INTEGER NOT NULL,      -- of those
	walk_no INTEGER NOT NULL,    -- grows when an entry of the past changes
	boot_id TEXT NOT NULL,
	boot_offset INTEGER NOT NULL,-- store's clock less that boot's clock
	pruned_at INTEGER NOT NULL,
	fresh INTEGER NOT NULL,      -- entries made since
	label_no INTEGER NOT NULL,   -- the newest label's number
	merged INTEGER NOT NULL DEFAULT 0, -- no id of a score up to here is held
	row_no INTEGER NOT NULL DEFAULT 0, -- the newest merged row's number
	idle_at INTEGER NOT NULL,    -- when nothing of it matters any more
	id TEXT NOT NULL DEFAULT '',        -- random; it changes with a loss
	newest_id TEXT NOT NULL DEFAULT '', -- of the newest entry
	changes INTEGER NOT NULL DEFAULT 0, -- charges, settlements and the like so far; never fewer
	reset_at INTEGER NOT NULL DEFAULT 0,-- when a reset began it; 0: none did
	loss TEXT NOT NULL DEFAULT '',      -- when the last one was noticed, and the hosts that have reported
	hosts TEXT NOT NULL DEFAULT '',     -- each host that decided lately, and when it was noted
	imports TEXT NOT NULL DEFAULT '',   -- each export that was imported lately, and how many of its rows
	tables TEXT NOT NULL DEFAULT '',    -- the share tables of hosts, and when each was noted
	split TEXT NOT NULL DEFAULT '',     -- the jobs that have lanes of their own, and how far their entries have moved there
	unnoted INTEGER NOT NULL DEFAULT 0, -- the history may lack charges of up to here
	hot BLOB NOT NULL DEFAULT x'',      -- totals and history that most charges change: see hot.go
	summed INTEGER NOT NULL DEFAULT 0,  -- no sum is of scores above this
	holds TEXT NOT NULL DEFAULT '',     -- what is kept for passes, as JSON; empty: nothing
	plans TEXT NOT NULL DEFAULT ''      -- what daemons know to be still needed of shares, as driver.Plans
);
CREATE INDEX budget_idle ON budget(idle_at);
CREATE TABLE operation (
	b INTEGER NOT NULL, no INTEGER NOT NULL, name TEXT NOT NULL,
	PRIMARY KEY (b, no)
) WITHOUT ROWID;
CREATE TABLE label (
	b INTEGER NOT NULL, name TEXT NOT NULL, no INTEGER NOT NULL, used_at INTEGER NOT NULL,
	PRIMARY KEY (b, name)
) WITHOUT ROWID;
CREATE INDEX label_use ON label(b, used_at);
CREATE TABLE win (
	b INTEGER NOT NULL, no INTEGER NOT NULL, key TEXT NOT NULL,
	kind TEXT NOT NULL,
	length INTEGER NOT NULL,     -- of a rolling window; else 0
	longest INTEGER NOT NULL,
	used_at INTEGER NOT NULL,
	cut INTEGER NOT NULL,        -- a calendar's, as of its last use
	floor INTEGER NOT NULL,      -- what finished up to here it does not know
	precision INTEGER NOT NULL DEFAULT 0, -- of a coarse window; else 0
	PRIMARY KEY (b, no)
) WITHOUT ROWID;
CREATE TABLE total (
	b INTEGER NOT NULL, win INTEGER NOT NULL, lane INTEGER NOT NULL,
	units INTEGER NOT NULL, calls INTEGER NOT NULL,
	cut INTEGER NOT NULL, built INTEGER NOT NULL,
	next INTEGER NOT NULL,       -- no counted entry has a lower score
	back_units INTEGER NOT NULL, -- came back since the total began
	back_calls INTEGER NOT NULL,
	PRIMARY KEY (b, win, lane)
) WITHOUT ROWID;
` + entryTables + meterTable + lockTable + jobTables + historyTables + dayTable + asOfColumn

// entryTables keep the entries in the order in which they are walked, and find them by id.
const entryTables = `
CREATE TABLE entry (
	b INTEGER NOT NULL, lane INTEGER NOT NULL, score INTEGER NOT NULL,
	no INTEGER NOT NULL,         -- tells entries of one lane and score apart
	id NOT NULL,                 -- text; bytes if this program made it: see id.go
	units INTEGER NOT NULL,
	calls INTEGER NOT NULL,      -- 1 but for a merged row
	state INTEGER NOT NULL,      -- 0 plain, 1 open, 2 settled, 3 released, 4 merged; 8 more: it would have been refused, but for observe mode
	start INTEGER,               -- when it was charged; null: at its score
	asked INTEGER,               -- null: its units
	job INTEGER NOT NULL, region INTEGER NOT NULL, run INTEGER NOT NULL, -- label numbers; 0: none
	more BLOB,                   -- what it counts in further meters; null: nothing
	PRIMARY KEY (b, lane, score, no)
) WITHOUT ROWID;
CREATE TABLE entry_id (
	b INTEGER NOT NULL,
	hash INTEGER NOT NULL,       -- of the id
	lane INTEGER NOT NULL, score INTEGER NOT NULL, no INTEGER NOT NULL,
	PRIMARY KEY (b, hash, lane, score, no)
) WITHOUT ROWID;
CREATE TABLE entry_sum (
	b INTEGER NOT NULL, lane INTEGER NOT NULL,
	upto INTEGER NOT NULL,       -- of the entries with scores up to here, and above the sum before
	units INTEGER NOT NULL, calls INTEGER NOT NULL,
	PRIMARY KEY (b, lane, upto)
) WITHOUT ROWID;
`

// meterTable keeps the live buckets.
const meterTable = `
CREATE TABLE meter (
	b INTEGER NOT NULL, key TEXT NOT NULL,
	counts TEXT NOT NULL,        -- units or calls
	operations TEXT NOT NULL,    -- patterns, by comma
	amount INTEGER NOT NULL, period INTEGER NOT NULL, -- drains amount a period
	used INTEGER NOT NULL, part INTEGER NOT NULL, at INTEGER NOT NULL, -- the level
	used_at INTEGER NOT NULL, longest INTEGER NOT NULL,
	fill INTEGER NOT NULL,       -- how full the oldest entry finds it
	oldest INTEGER NOT NULL,     -- when that was; 0: not come to one yet
	reached INTEGER NOT NULL,    -- replayed up to this score
	PRIMARY KEY (b, key)
) WITHOUT ROWID;
`

// lockTable keeps the locks; the next lock deletes those that have ended.
const lockTable = `
CREATE TABLE lock (
	b INTEGER NOT NULL,
	name TEXT NOT NULL,          -- a limit's; empty: the whole budget
	until INTEGER NOT NULL, since INTEGER NOT NULL,
	why TEXT NOT NULL,
	PRIMARY KEY (b, name)
) WITHOUT ROWID;
`

// jobTables keep the data of package jobs. A job without a document may have values and
// records. Documents are long, and tables with row ids read long rows faster.
const jobTables = `
CREATE TABLE job (
	name TEXT NOT NULL UNIQUE,
	version INTEGER NOT NULL,    -- 1 or more
	text BLOB NOT NULL
);
CREATE TABLE job_value (
	job TEXT NOT NULL, key TEXT NOT NULL,
	value BLOB NOT NULL,
	PRIMARY KEY (job, key)
) WITHOUT ROWID;
CREATE TABLE job_record (
	job TEXT NOT NULL, at INTEGER NOT NULL, id TEXT NOT NULL,
	text BLOB NOT NULL,
	UNIQUE (job, id)
);
CREATE INDEX job_record_order ON job_record(job, at, id);
CREATE TABLE job_clock (
	one INTEGER PRIMARY KEY CHECK (one = 1),
	last INTEGER NOT NULL,       -- when the newest document was written
	boot_id TEXT NOT NULL, boot_offset INTEGER NOT NULL
);
`

// migrations lead from a schema's version to the next.
var migrations = map[int64]string{
	1: `
ALTER TABLE budget ADD COLUMN merged INTEGER NOT NULL DEFAULT 0;
ALTER TABLE budget ADD COLUMN row_no INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entry ADD COLUMN calls INTEGER NOT NULL DEFAULT 1;
ALTER TABLE win ADD COLUMN precision INTEGER NOT NULL DEFAULT 0;
DROP INDEX entry_walk;
CREATE INDEX entry_walk ON entry(b, lane, score, units, calls);
` + meterTable,
	2: `
ALTER TABLE entry ADD COLUMN observed INTEGER NOT NULL DEFAULT 0;
` + lockTable,
	// Version 3 kept only an overlap mark of jobs.
	3: "DROP TABLE job; DROP TABLE job_clock;" + jobTables,
	4: `
ALTER TABLE budget ADD COLUMN id TEXT NOT NULL DEFAULT '';
ALTER TABLE budget ADD COLUMN newest_id TEXT NOT NULL DEFAULT '';
ALTER TABLE budget ADD COLUMN changes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE budget ADD COLUMN reset_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE budget ADD COLUMN loss TEXT NOT NULL DEFAULT '';
ALTER TABLE budget ADD COLUMN hosts TEXT NOT NULL DEFAULT '';
`,
	5: "ALTER TABLE budget ADD COLUMN imports TEXT NOT NULL DEFAULT '';",
	6: "ALTER TABLE budget ADD COLUMN split TEXT NOT NULL DEFAULT ''; ALTER TABLE budget ADD COLUMN tables TEXT NOT NULL DEFAULT '';" + historyTables,
	7: dayTable + `
ALTER TABLE budget ADD COLUMN unnoted INTEGER NOT NULL DEFAULT 0;
UPDATE budget SET unnoted = newest WHERE NOT EXISTS (SELECT 1 FROM series WHERE series.budget = budget.name);
INSERT INTO history_day(budget, day, id, series)
	SELECT series.budget, hour / 24, coalesce(nullif(budget.id, ''), upper(hex(randomblob(13)))), count(DISTINCT no)
	FROM series JOIN history ON series = no LEFT JOIN budget ON name = series.budget WHERE ledger = '' GROUP BY 1, 2;
`,
	8: asOfColumn,
	9: `
ALTER TABLE budget ADD COLUMN hot BLOB NOT NULL DEFAULT x'';
ALTER TABLE budget ADD COLUMN summed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE entry RENAME TO old_entry;
` + entryTables,
	10: "ALTER TABLE budget ADD COLUMN holds TEXT NOT NULL DEFAULT '';",
	11: "ALTER TABLE budget ADD COLUMN plans TEXT NOT NULL DEFAULT '';",
}

// isPrepared reports whether prepareFile has nothing to do. It changes nothing and needs
// no lock. It returns false if it cannot read the file, or another process is still creating
// it: prepareFile, under the lock, finds out what is wrong.
func isPrepared(c *conn) bool {
	var mode string
	if _, err := c.first("PRAGMA journal_mode", nil, &mode); err != nil || mode != "wal" {
		return false
	}
	version, err := identify(c)
	return err == nil && version == schemaVersion
}

// prepareFile creates the tables of a new file, migrates an older one, and refuses a file
// that is not ours. A migration may take until patient ends. The caller holds the file lock.
func prepareFile(ctx, patient context.Context, c *conn) error {
	// Check before changing anything: another program's file must stay unchanged.
	if _, err := identify(c); err != nil {
		return err
	}
	var mode string
	if err := errOf(c.first("PRAGMA journal_mode=WAL", nil, &mode)); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("%w: SQLite cannot keep a write-ahead log there (journal mode %s): use a local disk", driver.ErrStoreConfig, mode)
	}
	err := c.begin(ctx, beginWriting)
	if err != nil {
		return err
	}
	version := int64(schemaVersion)
	err = func() error {
		version, err = identify(c)
		if err != nil || version == schemaVersion {
			return err
		}
		change := schema
		if version > 0 {
			change = ""
			for v := version; v < schemaVersion; v++ {
				change += migrations[v]
			}
		}
		err = c.script(patient, fmt.Sprintf("%s PRAGMA application_id=%d; PRAGMA user_version=%d;", change, applicationID, schemaVersion))
		if err == nil && 0 < version && version < entriesConverted {
			err = convertEntries(patient, c)
		}
		return err
	}()
	if err == nil {
		err = c.exec("COMMIT")
	}
	if err != nil {
		_ = c.exec("ROLLBACK") // fails if the error already ended the transaction
	}
	if isTimeUp(err) && 0 < version && version < schemaVersion {
		err = fmt.Errorf("%w: %w", errConverting, err)
	}
	return err
}

// errConverting: the time for the call, not for the opening of a store, ran out, as happens where
// an older file replaces the one that a store has open.
var errConverting = errors.New("its file is of an older version, and to convert it takes longer than a call may: run any quotactl command once, such as doctor, which takes the time that it needs")

// identify returns the version of the file's schema, 0 for a new file. It fails if the file
// is not ours or is newer than this program.
func identify(c *conn) (version int64, err error) {
	var id, tables int64
	for query, dest := range map[string]*int64{
		"PRAGMA application_id": &id, "PRAGMA user_version": &version, "SELECT count(*) FROM sqlite_schema": &tables,
	} {
		if err := errOf(c.first(query, nil, dest)); err != nil {
			return 0, err
		}
	}
	switch {
	case id == 0 && version == 0 && tables == 0:
		return 0, nil
	case id != applicationID:
		return 0, fmt.Errorf("%w: it is a SQLite file of another program: give another path", driver.ErrStoreConfig)
	case version > schemaVersion:
		return 0, newerVersion(version)
	}
	return version, nil
}

// checkVersion refuses, within a transaction, a file that a newer program has migrated
// since it was opened: this program's rows would lack what the newer one needs.
func checkVersion(c *conn) error {
	var version int64
	if _, err := c.first("PRAGMA user_version", nil, &version); err != nil {
		return err
	}
	if version > schemaVersion {
		return newerVersion(version)
	}
	return nil
}

func newerVersion(version int64) error {
	return fmt.Errorf("%w: its schema has version %d, this program knows up to %d: use the newer quotactl for all processes that share the file",
		driver.ErrStoreConfig, version, schemaVersion)
}
