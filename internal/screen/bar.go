package screen

import "strings"

// LowPart is the part of a limit below which what is free of it is shown as little.
const LowPart = 0.2

// Bar draws how much of a whole is used, and of what is left how much is kept for others: █
// is used, ▒ kept, ░ free. What is above 0 shows, and so does what is left. The colour says
// whether less than LowPart is free, or nothing is left.
func (s Screen) Bar(width int, used, kept, whole int64) string {
	if whole <= 0 {
		return s.Bad(strings.Repeat("█", width))
	}
	used = min(max(0, used), whole)
	kept = min(max(0, kept), whole-used)
	full := part(width, used, whole)
	if used < whole && full == width {
		full--
	}
	held := min(width-full, part(width, kept, whole))
	paint := s.Good
	switch {
	case used == whole:
		paint = s.Bad
	case float64(whole-used-kept) < LowPart*float64(whole):
		paint = s.Warn
	}
	return paint(strings.Repeat("█", full)) + strings.Repeat("▒", held) + s.Faint(strings.Repeat("░", width-full-held))
}

// part is how many of width columns an amount takes, 1 at least if it is above 0.
func part(width int, amount, whole int64) int {
	n := int(float64(width)*float64(amount)/float64(whole) + 0.5)
	if amount > 0 {
		n = max(1, n)
	}
	return min(n, width)
}
