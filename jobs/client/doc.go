// Package client is for Go programs that run under the daemon: [Run] says for
// which run of which job the program was started, and a [Checkpoint] keeps how far
// it came, so that an interrupted run is resumed. [OpenCheckpoint] opens the one of
// this run.
package client
