package driver

// Severity says how bad a Finding is.
type Severity string

// The severities of a Finding.
const (
	OK      Severity = "ok"
	Warning Severity = "warning" // it works now, but may fail
	Fault   Severity = "error"   // it does not work, or breaks a promise
)

// Finding is the result of one check of a store's health.
type Finding struct {
	Check  string // what was checked: "persistence"
	Level  Severity
	Says   string // what was found
	Advice string // what to do about it; empty: nothing
}
