// Package limit is the arithmetic of limits: what a limit covers, over which
// window it counts, how much may still be spent of it, and when a charge comes
// back. It also reads and writes units and spans of time as costs.toml does.
//
// Make a window with one of [RollingWindow], [CoarseWindow], [CalendarWindow],
// [BucketWindow] and [ConcurrentWindow], and put it into a [Limit]. Instants and
// spans are int64 microseconds, amounts are units or calls, 0 to [MaxUnits].
// Nothing here reads a clock or remembers anything.
package limit
