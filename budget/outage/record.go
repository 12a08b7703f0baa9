package outage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/quotactl/quotactl/budget/driver"
)

// recordVersion is the version of the journal's records.
const recordVersion = 1

// record is one thing that happened while the store was out of reach: a charge,
// or the end of a reservation.
type record struct {
	Version int           `json:"v"`
	Budget  string        `json:"budget"`
	ID      string        `json:"id"`
	Boot    string        `json:"boot"` // the boot that At counts from
	At      int64         `json:"at"`   // µs since that boot
	Charge  *chargeRecord `json:"charge,omitempty"`
	Finish  *finishRecord `json:"finish,omitempty"`
}

type chargeRecord struct {
	Operation string `json:"operation"`
	Units     int64  `json:"units"`
	Lease     int64  `json:"lease,omitempty"` // µs
	Held      int64  `json:"held,omitempty"`  // µs: the length of the longest window that counts it
	Job       string `json:"job,omitempty"`
	Region    string `json:"region,omitempty"`
	Run       string `json:"run,omitempty"`
	Fence     string `json:"fence,omitempty"` // of its pass, whose hold it draws from if that lives
}

type finishRecord struct {
	Release bool  `json:"release,omitempty"`
	Units   int64 `json:"units"`
}

// item is the charge as an item for the store to record.
func (r *record) item(age int64) driver.Item {
	c := r.Charge
	return driver.Item{
		ID: r.ID, Operation: c.Operation, Units: c.Units, Lease: c.Lease, Recorded: true, Age: age,
		Labels: driver.Labels{Job: c.Job, Region: c.Region, Run: c.Run}, Fence: c.Fence,
	}
}

// age is how long ago the record was made, in µs. For a record of an earlier boot it is
// the time since this boot, which is no more than the true age.
func (r *record) age(boot string, now int64) int64 {
	if r.Boot != boot {
		return max(0, now)
	}
	return max(0, now-r.At)
}

// name is the name of its file: a hash, as an id may contain what a file name may not.
func (r *record) name() string {
	sum := sha256.Sum256([]byte(r.ID))
	name := hex.EncodeToString(sum[:16])
	if r.Finish != nil {
		return name + ".finish"
	}
	return name + ".charge"
}

// parseRecord reads a record and checks all of it.
func parseRecord(data []byte) (*record, error) {
	r := &record{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(r); err != nil {
		return nil, fmt.Errorf("it is not a record of the journal: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the record")
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("it has version %d, this program knows %d: use the newer quotactl", r.Version, recordVersion)
	}
	return r, r.check()
}

// check returns an error for a record that this program cannot have written.
func (r *record) check() error {
	if (r.Charge == nil) == (r.Finish == nil) {
		return errors.New("it must hold either a charge or a finish")
	}
	if !driver.ValidBudget(r.Budget) || r.At < 0 {
		return fmt.Errorf("budget %q at %d: the name or the instant is invalid", r.Budget, r.At)
	}
	if f := r.Finish; f != nil {
		return driver.Item{Operation: "any", ID: r.ID, Units: f.Units}.Validate()
	}
	c := r.Charge
	return driver.Item{
		Operation: c.Operation, ID: r.ID, Units: c.Units, Lease: c.Lease,
		Labels: driver.Labels{Job: c.Job, Region: c.Region, Run: c.Run},
	}.Validate()
}
