package budgethttp

import (
	"net/http"
	"slices"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/feedback"
	"github.com/quotactl/quotactl/budget/limit"
)

// costSaid is what a response says that its call cost.
type costSaid struct {
	places []feedback.Source // where it may say so, in order
	units  []*int64          // what it says there; the last of several documents
	wrong  []unreads         // values there that are not a cost
	// missed is why a later document, which may have stated another cost, could not be
	// read.
	missed unreads
	doubt  bool // the body is damaged
}

// newCostSaid reads the cost from the header.
func newCostSaid(places []feedback.Source, header http.Header) *costSaid {
	c := &costSaid{places: places, units: make([]*int64, len(places)), wrong: make([]unreads, len(places))}
	_, _ = c.read(newContent(header, nil), func(s *feedback.Source) bool { return s.Header != "" })
	return c
}

// document reads the cost from one document of the body.
func (c *costSaid) document(document *content) {
	held := c.holds()
	found, wrong := c.read(document, func(s *feedback.Source) bool { return s.JSON != "" })
	_, stale := wrong[held]
	switch {
	case len(found) > 0 && !stale:
		c.missed = nil
	default:
		for i := range c.places {
			if one, isWrong := wrong[i]; isWrong {
				c.missed.add(one)
			}
		}
	}
}

// tells reports whether a document has a value at a place of the cost.
func (c *costSaid) tells(document *content) bool {
	for i := range c.places {
		if c.places[i].JSON == "" {
			continue
		}
		if texts, err := document.texts(&c.places[i]); len(texts) > 0 || err != nil {
			return true
		}
	}
	return false
}

// miss notes that something which may have stated the cost could not be read.
func (c *costSaid) miss(why string) { c.missed.add(Unread{What: UnreadActual, Why: why}) }

// inDoubt reports whether the body may have stated another cost than the known one.
func (c *costSaid) inDoubt() bool {
	held := c.holds()
	if held < 0 || !slices.ContainsFunc(c.places[:held+1], func(s feedback.Source) bool { return s.JSON != "" }) {
		return false
	}
	return c.doubt || len(c.missed) > 0 && c.places[held].JSON != ""
}

// misread returns the values that are not a cost, at the places before the one that
// states the cost, or at all places if none does.
func (c *costSaid) misread() (found []Unread) {
	before := c.holds()
	if before < 0 {
		before = len(c.places)
	}
	for _, wrong := range c.wrong[:before] {
		found = append(found, wrong...)
	}
	return found
}

// settled is the cost at which a call is settled: the stated one, or the estimate. A cost
// in doubt is no less than the estimate.
func (c *costSaid) settled(estimate int64) int64 {
	units, known := c.known()
	switch {
	case !known:
		return estimate
	case c.inDoubt():
		return max(units, estimate)
	}
	return units
}

// read reads the places that stands selects. It returns the indexes of those that state a
// cost, and by index the values that are not a cost.
func (c *costSaid) read(from *content, stands func(*feedback.Source) bool) (found []int, wrong map[int]Unread) {
	wrong = map[int]Unread{}
	for i := range c.places {
		place := &c.places[i]
		if !stands(place) {
			continue
		}
		units, ok, err := from.cost(place)
		switch {
		case err != nil:
			wrong[i] = Unread{What: UnreadActual, Place: placeOf(place), Why: err.Error()}
			c.wrong[i].add(wrong[i])
		case ok:
			c.units[i] = &units
			found = append(found, i)
		}
	}
	return found, wrong
}

// cost is the value at a place, rounded up; the largest of several. found is false if
// there is no value.
func (c *content) cost(place *feedback.Source) (units int64, found bool, err error) {
	texts, err := c.texts(place)
	if len(texts) == 0 {
		return 0, false, err
	}
	for _, text := range texts {
		one, wrong := limit.ParseUnits(text)
		if wrong != nil {
			err = wrong
			continue
		}
		units, found = max(units, one), true
	}
	if found {
		return units, true, nil
	}
	return 0, false, err
}

// known is the cost at the first place that states one.
func (c *costSaid) known() (int64, bool) {
	if i := c.holds(); i >= 0 {
		return *c.units[i], true
	}
	return 0, false
}

// holds is the index of the first place that states the cost; -1: none does.
func (c *costSaid) holds() int {
	return slices.IndexFunc(c.units, func(n *int64) bool { return n != nil })
}

// inBody reports whether the body may still state another cost than the header did.
func (c *costSaid) inBody() bool {
	for i := range c.places {
		switch {
		case c.units[i] != nil:
			return false
		case c.places[i].JSON != "":
			return true
		}
	}
	return false
}

// statusCost is the cost of a charged request if the response states none.
func statusCost(cost budget.Cost, status int, charged int64) int64 {
	if status == http.StatusNotModified && cost.NotModified != nil {
		return *cost.NotModified
	}
	return charged
}
