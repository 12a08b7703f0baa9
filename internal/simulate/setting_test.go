package simulate

import (
	"bytes"
	_ "embed"
	"time"

	"github.com/quotactl/quotactl/jobs"
)

// setting is what a month is lived with, but for its faults.
type setting struct {
	config []byte
	// missing is the job that misses a tick for certain, at most so long after midnight.
	missing string
	calm    time.Duration
	// important is the job whose passes are complete on every day; empty: none.
	important string
	compared  bool // nothing is promised of it
	// stranger: somebody else spends too, and the upstream reports what is used.
	stranger bool
}

var (
	//go:embed testdata/costs.toml
	costs []byte
	//go:embed testdata/shares.toml
	shares []byte
)

// ordinary is a month with floors, whose backfill begins at 19:00.
var ordinary = setting{config: costs, missing: "search", calm: 17 * time.Hour}

// sharing is a month with shares, holds and deferral; floored is the same with floors
// alone; in intruded, a stranger spends too, and the headroom is automatic.
var (
	sharing  = setting{config: shares, missing: "nightly", calm: 21 * time.Hour, important: "nightly"}
	floored  = setting{config: edit(shares, "spends well", "floor alone"), missing: "nightly", calm: 21 * time.Hour, important: "nightly", compared: true}
	intruded = setting{config: edit(shares, "nobody else", "a stranger"), missing: "nightly", calm: 21 * time.Hour, important: "nightly", stranger: true}
)

// edit is a configuration without the lines that end in a comment, and with those that
// are behind another.
func edit(text []byte, without, with string) []byte {
	var list [][]byte
	for line := range bytes.Lines(text) {
		if !bytes.HasSuffix(line, []byte(" # "+without+"\n")) {
			list = append(list, bytes.TrimPrefix(line, []byte("# "+with+": ")))
		}
	}
	return bytes.Join(list, nil)
}

// protect has the store stay in reach, and daemons alive, while a job's passes are under
// way; what else goes wrong is as likely then as when the day is filled. With shares, that
// is as its units are there: from the second day on at midnight, since the last pass of
// the day before is deferred until then.
func (m *month) protect(j *jobs.Job) {
	m.wanted = len(j.Regions) * j.Fetch.MaxPages
	first := m.filled
	m.filled = func(day int) time.Time {
		if day == 0 {
			return first(day)
		}
		return m.midnight(day)
	}
	m.busy = []func(int) time.Time{m.filled, func(day int) time.Time { return j.Next(m.midnight(day)) }}
	for day := range m.days {
		// A daemon's clock may be an hour ahead.
		tick := j.Next(m.midnight(day))
		m.apart = append(m.apart, span{tick.Add(-65 * time.Minute), 65*time.Minute + j.Timeout})
	}
}
