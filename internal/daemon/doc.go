// Package daemon is what stands around package jobs when it runs day and night: it
// waits for the store, reloads the configuration, serves decisions, metrics and health
// at an [Endpoint], notifies the service manager, and is a container's first process
// ([AsFirstProcess]).
//
// [New] makes a [Daemon]; then come, in this order, [Daemon.Read], [Daemon.OpenStore],
// [Daemon.Begin] and [Daemon.Run].
package daemon
