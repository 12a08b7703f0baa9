package limit

import "strings"

// What opens the names of the pseudo-operations, under which stands what counts in
// one limit alone. No operation's name holds a slash.
const (
	recoveredPrefix = "recovered/"
	driftPrefix     = "drift/"
)

// RecoveredOperation is the pseudo-operation of what was lost of a limit. Only
// the limit of that name covers it.
func RecoveredOperation(limit string) string { return recoveredPrefix + limit }

// DriftOperation is the pseudo-operation of what an upstream counts of a limit and
// no charge explains. Only the limit of that name covers it.
func DriftOperation(limit string) string { return driftPrefix + limit }

// RecoveredID is the id of the charge that stands for it; no call's id holds a
// space.
func RecoveredID(limit string) string { return " " + RecoveredOperation(limit) }

// DriftID is likewise that of what drifted.
func DriftID(limit string) string { return " " + DriftOperation(limit) }

// IsPseudo reports whether an operation is a pseudo-operation.
func IsPseudo(operation string) bool {
	_, ok := pseudoLimit(operation)
	return ok
}

// pseudoLimit is the limit that a pseudo-operation is of.
func pseudoLimit(operation string) (limit string, ok bool) {
	if limit, ok = strings.CutPrefix(operation, recoveredPrefix); ok {
		return limit, true
	}
	return strings.CutPrefix(operation, driftPrefix)
}
