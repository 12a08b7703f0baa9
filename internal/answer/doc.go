// Package answer defines the JSON answers of quotactl, one type for each. The command
// line with --json and the daemon over HTTP give the same ones.
//
// New members may be added; existing ones keep their name and meaning. null means not
// applicable.
package answer
