// Package client is for Go programs that run under the daemon. [Run] reads which run of
// which job the program was started for. A [Checkpoint] stores how far it has come, so
// that an interrupted run is resumed; [OpenCheckpoint] opens the checkpoint of this run.
package client
