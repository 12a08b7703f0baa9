// Package schedule parses cron lines and computes their ticks: five fields in a time
// zone, a descriptor such as "@daily", or "@every" with a span. [Parse] reads a line,
// [Schedule.Next] returns the next tick, [Schedule.Between] the ticks of a span of time.
// [Schedule] describes the days on which a zone's clock jumps.
package schedule
