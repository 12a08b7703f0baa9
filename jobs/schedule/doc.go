// Package schedule reads cron lines and tells when they tick: five fields in a
// time zone, a descriptor such as "@daily", or "@every" with a span. [Parse] reads
// one, [Schedule.Next] tells the next tick, [Schedule.Between] those of a span of
// time. Days on which a zone's clock jumps have rules of their own: see [Schedule].
package schedule
