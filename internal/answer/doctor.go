package answer

import (
	"time"

	"github.com/quotactl/quotactl/budget/driver"
)

// Doctor is the JSON answer of doctor.
type Doctor struct {
	At     Instant   `json:"at"`
	Store  string    `json:"store"`
	Checks []Finding `json:"checks"`
}

// Finding is what one check of doctor has found.
type Finding struct {
	Check  string          `json:"check"`
	Level  driver.Severity `json:"level"`
	Says   string          `json:"says"`
	Advice string          `json:"advice,omitempty"`
}

// NewDoctor makes the answer of doctor at an instant. The caller has redacted store.
func NewDoctor(at time.Time, store string, list []driver.Finding) Doctor {
	d := Doctor{At: Instant(at.UTC()), Store: store, Checks: []Finding{}}
	for _, f := range list {
		d.Checks = append(d.Checks, Finding(f))
	}
	return d
}

// Faults counts what is wrong.
func (d Doctor) Faults() (n int) {
	for _, f := range d.Checks {
		if f.Level == driver.Fault {
			n++
		}
	}
	return n
}
