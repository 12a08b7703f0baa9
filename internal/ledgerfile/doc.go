// Package ledgerfile moves a ledger between stores in a file of JSON lines. [Export]
// writes a file, [Check] reads it to the end, and [Import] adds it to a ledger.
//
// The first line names the budget, the export and the ledger. Each further line is one
// charge, a row of merged charges, what a limit has drifted or lost, or what was charged in
// an hour of the history. The last line gives the number of rows, so that a truncated file is detected.
package ledgerfile
