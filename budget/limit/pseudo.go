package limit

import "strings"

// The prefixes of pseudo-operations, each of which counts in one limit only. No
// operation's name contains a slash.
const (
	recoveredPrefix = "recovered/"
	driftPrefix     = "drift/"
)

// RecoveredOperation is the pseudo-operation of charges of a limit that were lost and
// recovered. Only the limit of that name covers it.
func RecoveredOperation(limit string) string { return recoveredPrefix + limit }

// DriftOperation is the pseudo-operation of what an upstream counts of a limit and
// no charge explains. Only the limit of that name covers it.
func DriftOperation(limit string) string { return driftPrefix + limit }

// RecoveredID is the id of the charge of RecoveredOperation; no call's id contains a
// space.
func RecoveredID(limit string) string { return " " + RecoveredOperation(limit) }

// DriftID is the id of the charge of DriftOperation.
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
