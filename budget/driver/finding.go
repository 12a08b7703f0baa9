package driver

// Severity says how bad a Finding is.
type Severity string

// The severities of a Finding.
const (
	OK      Severity = "ok"
	Warning Severity = "warning" // it works, and may not always
	Fault   Severity = "error"   // it does not work, or does not hold what it promises
)

// Finding is one thing that was looked at to tell whether a store serves.
type Finding struct {
	Check string // what was looked at: "persistence"
	Level Severity
	Says  string // what was found
	// Advice is what to do about it; empty where nothing is to be done.
	Advice string
}
