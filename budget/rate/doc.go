// Package rate is the arithmetic of burn rates: from what was charged lately it works out how
// fast a limit is spent, and when it is empty if that goes on. Nothing here reads a clock or a
// store; package budget does.
//
// Lately is [Span]: of windows and periods shorter than an hour, all of it; else a quarter,
// at least an hour and at most a day. That of a day is six hours: long enough that jobs which
// run every three hours, and stagger their regions, are seen as what they are, and short
// enough that one which runs wild shows within the hour. A span of an hour or more begins with
// a whole hour, because history is kept by the hour.
//
//   - A reservation counts as what it became: as settled, or not at all if it was released.
//     Open ones count with what they reserved.
//   - Drift and recovered units are used, and return, but nobody spends them at a rate.
//   - From fewer than [FewestCharges] charges there is no rate.
//   - A calendar's limit is empty when what is left is spent, unless it resets before.
//   - A rolling limit also gets units back, each a window after it was charged. It is empty
//     when what is used, less what has returned by then, reaches the limit. What is charged
//     from now on returns after a window too, so what does not run out within one window
//     does not run out at this rate.
//   - A bucket is empty if the rate is above its refill.
//   - A limit on open reservations has no rate.
package rate
