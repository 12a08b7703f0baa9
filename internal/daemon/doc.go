// Package daemon runs the jobs of package jobs day and night. It waits for the store,
// reloads the configuration, serves charges, metrics and health at an [Endpoint], notifies
// the service manager, and can be a container's first process ([AsFirstProcess]).
//
// [New] makes a [Daemon]. Then call, in this order, [Daemon.Read], [Daemon.OpenStore],
// [Daemon.Begin] and [Daemon.Run].
package daemon
