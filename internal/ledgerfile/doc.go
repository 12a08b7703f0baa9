// Package ledgerfile moves a ledger between stores in a file of JSON lines: [Export]
// writes one, [Check] reads it through, and [Import] adds it to a ledger.
//
// The first line names the budget, the export and the ledger. Each further line is one
// charge, a row of merged charges, or what a limit has drifted or lost. The last line
// says how many rows there are, so that a file that was cut off is found out.
package ledgerfile
