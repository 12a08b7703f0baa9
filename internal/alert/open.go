package alert

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/budget/driver"
)

// Situation is something that began and has not ended. Parts that do not apply are empty.
type Situation struct {
	Alert              string
	Kind               string // as in the configuration: "exhausted", "used 80%"
	Budget, Limit, Job string
	Begun, Seen        time.Time // Seen is when any daemon saw it last, to within minutes; zero: not known
}

// Open reads the situations that alerts have told of and that have not ended: in the order of the
// alerts, the newest first.
func Open(ctx context.Context, state driver.JobStore, alerts []config.Alert) ([]Situation, error) {
	names := make([]string, len(alerts))
	for i, a := range alerts {
		names[i] = documentOf(a.Name)
	}
	if len(names) == 0 {
		return nil, nil
	}
	found, err := state.Jobs(ctx, names)
	if err != nil {
		return nil, err
	}
	var list []Situation
	for i, a := range alerts {
		r, err := read(a.Name, found[i])
		if err != nil {
			return nil, err
		}
		list = append(list, r.list(a.Name)...)
	}
	return list, nil
}

// list are the open situations of an alert.
func (r *record) list(alert string) (list []Situation) {
	for key, s := range r.Situations {
		parts := strings.Split(key, "|")
		if !s.Open || len(parts) != 4 {
			continue
		}
		one := Situation{Alert: alert, Kind: parts[0], Budget: parts[1], Limit: parts[2], Job: parts[3], Begun: time.UnixMicro(s.Begun).UTC()}
		if s.Seen > 0 {
			one.Seen = time.UnixMicro(s.Seen).UTC()
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Situation) int {
		return cmp.Or(b.Begun.Compare(a.Begun), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Budget, b.Budget), cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Job, b.Job))
	})
	return list
}
