package limit

import "strings"

// The prefixes of pseudo-operations. A charge of a pseudo-operation counts in one limit
// alone. No real operation's name contains a slash.
const (
	recoveredPrefix = "recovered/"
	driftPrefix     = "drift/"
)

// RecoveredOperation is the pseudo-operation under which lost charges of a limit are
// recorded again. Only the limit of that name covers it.
func RecoveredOperation(limit string) string { return recoveredPrefix + limit }

// DriftOperation is the pseudo-operation under which drift in a limit is recorded: use
// that the upstream reports and no charge explains. Only the limit of that name covers
// it.
func DriftOperation(limit string) string { return driftPrefix + limit }

// RecoveredID is the id of the charge of [RecoveredOperation]. It begins with a space, so
// it is never a call's id.
func RecoveredID(limit string) string { return " " + RecoveredOperation(limit) }

// DriftID is the id of the charge of [DriftOperation]; it begins with a space too.
func DriftID(limit string) string { return " " + DriftOperation(limit) }

// IsPseudo reports whether an operation is a pseudo-operation.
func IsPseudo(operation string) bool {
	_, ok := pseudoLimit(operation)
	return ok
}

// pseudoLimit is the name of the limit that a pseudo-operation belongs to.
func pseudoLimit(operation string) (limit string, ok bool) {
	if limit, ok = strings.CutPrefix(operation, recoveredPrefix); ok {
		return limit, true
	}
	return strings.CutPrefix(operation, driftPrefix)
}
