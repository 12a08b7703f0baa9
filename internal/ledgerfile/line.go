package ledgerfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// formatVersion is the version that this program writes; it reads those before it, too.
// Version 2 added the rows of history, version 3 their calls, also if there is one or none,
// and how far the history may lack charges, version 4 the instants whose numbers they have,
// version 5 the rows of refusals.
const formatVersion = 5

// headLine is the first line.
type headLine struct {
	Version int        `json:"quotactl_export"`
	Budget  string     `json:"budget"`
	Export  string     `json:"export"`               // random: names this file
	Ledger  string     `json:"ledger"`               // empty: there was no ledger
	At      instant    `json:"at"`                   // the store's clock
	Born    instant    `json:"since"`                // the ledger's first decision
	Gone    instant    `json:"forgotten_up_to"`      // charges that finished up to then no longer count
	Unnoted instant    `json:"not_in_history_up_to"` // the history may lack charges of up to then
	Locks   []lockLine `json:"locks,omitempty"`
}

// lockLine is a lock; an empty limit is the whole budget.
type lockLine struct {
	Limit string  `json:"limit,omitempty"`
	Until instant `json:"until"`
	Since instant `json:"since"`
	Why   string  `json:"reason,omitempty"`
}

// rowLine is a row. A missing member has its usual value, given beside it.
type rowLine struct {
	ID        string          `json:"id"`
	Operation string          `json:"operation"`
	State     driver.RowState `json:"state,omitempty"` // plain
	Units     *int64          `json:"units"`
	Asked     *int64          `json:"asked,omitempty"` // units
	Calls     *int64          `json:"calls,omitempty"` // 1; a row of history has it always
	At        *instant        `json:"at"`
	Until     *instant        `json:"until,omitempty"` // when it finishes: at
	Job       string          `json:"job,omitempty"`
	Region    string          `json:"region,omitempty"`
	Run       string          `json:"run,omitempty"`
	Observed  bool            `json:"observed,omitempty"`
	AsOf      *instant        `json:"as_of,omitempty"` // whose numbers a row of history has; null: unknown; before version 4: that of the export
}

// endLine is the last line.
type endLine struct {
	Rows int64 `json:"rows"` // all, also those of history
}

func newRowLine(r driver.Row) rowLine {
	line := rowLine{
		ID: r.ID, Operation: r.Operation, State: r.State, Units: &r.Units, At: (*instant)(&r.Start),
		Job: r.Labels.Job, Region: r.Labels.Region, Run: r.Labels.Run, Observed: r.Observed,
	}
	if r.State == driver.RowPlain {
		line.State = ""
	}
	if r.Calls != 1 || r.State == driver.RowHistory {
		line.Calls = &r.Calls
	}
	if r.Asked != r.Units && r.State != driver.RowHistory {
		line.Asked = &r.Asked
	}
	if r.Score != r.Start {
		line.Until = (*instant)(&r.Score)
	}
	if r.State == driver.RowHistory {
		line.AsOf = (*instant)(&r.AsOf)
	}
	return line
}

// row is the row of a line in a file of a version, which was exported at an instant.
func (l rowLine) row(version int, exported int64) (driver.Row, error) {
	switch {
	case l.Units == nil:
		return driver.Row{}, errors.New(`it has no "units"`)
	case l.At == nil:
		return driver.Row{}, errors.New(`it has no "at"`)
	case l.State == driver.RowOpen && l.Until == nil:
		return driver.Row{}, errors.New(`it is an open reservation and has no "until"`)
	case l.State == driver.RowHistory && l.Calls == nil && version >= 3:
		return driver.Row{}, errors.New(`it is a row of history and has no "calls"`)
	case l.State != driver.RowHistory && l.AsOf != nil:
		return driver.Row{}, errors.New(`it is no row of history and has "as_of"`)
	}
	r := driver.Row{
		ID: l.ID, Operation: l.Operation, State: l.State, Asked: *l.Units, Units: *l.Units, Calls: 1, Start: int64(*l.At), Score: int64(*l.At),
		Labels: driver.Labels{Job: l.Job, Region: l.Region, Run: l.Run}, Observed: l.Observed,
	}
	if l.State == "" {
		r.State = driver.RowPlain
	}
	switch {
	case l.Calls != nil:
		r.Calls = *l.Calls
	case l.State == driver.RowHistory && r.Pseudo() && r.Units != 0: // version 2 left out none as well as one; drift is in units or in calls
		r.Calls = 0
	}
	if l.Asked != nil {
		r.Asked = *l.Asked
	}
	if l.Until != nil {
		r.Score = int64(*l.Until)
	}
	switch {
	case l.AsOf != nil:
		r.AsOf = int64(*l.AsOf)
	case l.State == driver.RowHistory && version < 4:
		r.AsOf = exported
	}
	return r, nil
}

// instant is in µs since the Unix epoch; in JSON it is RFC 3339, or null for 0.
type instant int64

const instantLayout = "2006-01-02T15:04:05.000000Z"

func (i instant) MarshalJSON() ([]byte, error) {
	if i == 0 {
		return []byte("null"), nil
	}
	return time.UnixMicro(int64(i)).UTC().AppendFormat([]byte(`"`), instantLayout+`"`), nil
}

func (i *instant) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		*i = 0
		return nil
	}
	var at time.Time
	if err := json.Unmarshal(text, &at); err != nil {
		return fmt.Errorf("the instant %s is not of the form %s", text, instantLayout)
	}
	if *i = instant(at.UnixMicro()); *i < 0 {
		return errors.New("an instant before 1970")
	}
	return nil
}
