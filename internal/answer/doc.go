// Package answer has the answers of quotactl as JSON, one type for each, whoever
// gives it: the command line with --json, or the daemon over HTTP.
//
// Members may be added; those that are there keep their name and meaning. What is not
// applicable is null.
package answer
