package headroom

import (
	"fmt"
	"strings"
)

// String is the headroom and what it is made of: "41: 30 drift, 11 in flight".
func (p Parts) String() string {
	made := p.madeOf()
	switch {
	case !p.Known && p.Periods < Full:
		return fmt.Sprintf("%d, its maximum, until the upstream has reported in %d full periods; so far it has in %d", p.Units(), Full, p.Periods)
	case !p.Known:
		return fmt.Sprintf("%d, its maximum, because the history does not reach back to the third full period in which the upstream reported", p.Units())
	case p.Capped():
		return fmt.Sprintf("%d, its maximum, of %d: %s", p.Units(), p.Sum(), made)
	case made == "":
		return fmt.Sprintf("%d, its minimum", p.Units())
	case p.Sum() < p.Least:
		return fmt.Sprintf("%d, its minimum: %s", p.Units(), made)
	}
	return fmt.Sprintf("%d: %s", p.Units(), made)
}

// madeOf lists the parts that are not 0.
func (p Parts) madeOf() string {
	var words []string
	for _, part := range p.Named() {
		if part.Amount > 0 {
			words = append(words, fmt.Sprintf("%d %s", part.Amount, strings.ReplaceAll(part.Name, "_", " ")))
		}
	}
	return strings.Join(words, ", ")
}

// Part is one of the parts of a headroom.
type Part struct {
	Name   string // drift, in_flight, clock or outage
	Amount int64
}

// Named lists the parts.
func (p Parts) Named() []Part {
	return []Part{{"drift", p.Drift}, {"in_flight", p.InFlight}, {"clock", p.Clock}, {"outage", p.Outage}}
}
