package daemon

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/jobs"
)

// differences returns the log fields that name what was added, removed and changed
// between two generations; empty if nothing was.
func differences(before, after *generation) []any {
	named := func(list []*jobs.Job) map[string]*jobs.Job {
		byName := map[string]*jobs.Job{}
		for _, job := range list {
			byName[job.Name] = job
		}
		return byName
	}
	fields := changed("jobs", named(before.jobs), named(after.jobs), jobs.Same)
	return append(fields, changed("budgets", before.budgets, after.budgets, func(a, b *budget.Budget) bool {
		return sameSpec(a.Spec(), b.Spec())
	})...)
}

// changed compares two maps by name.
func changed[T any](what string, before, after map[string]T, same func(a, b T) bool) (fields []any) {
	for _, c := range []struct {
		how  string
		from map[string]T
		is   func(name string) bool
	}{
		{"added", after, func(name string) bool { _, was := before[name]; return !was }},
		{"removed", before, func(name string) bool { _, is := after[name]; return !is }},
		{"changed", after, func(name string) bool { was, both := before[name]; return both && !same(was, after[name]) }},
	} {
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(c.from)), func(name string) bool { return !c.is(name) })
		if len(names) > 0 {
			fields = append(fields, what+"_"+c.how, strings.Join(names, ", "))
		}
	}
	return fields
}

// sameSpec reports whether two readings of a budget mean the same.
func sameSpec(a, b budget.Spec) bool {
	// A calendar holds its zone as loaded, and two loads of one zone differ. Compare its
	// key, which has all that matters.
	keys := func(s *budget.Spec) (keys []string) {
		s.Jobs = nil // differences compares the jobs separately
		s.Limits = slices.Clone(s.Limits)
		for i := range s.Limits {
			keys = append(keys, s.Limits[i].Window.Key())
			s.Limits[i].Window.Calendar = nil
		}
		return keys
	}
	return slices.Equal(keys(&a), keys(&b)) && reflect.DeepEqual(a, b)
}
