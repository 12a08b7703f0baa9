package answer

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/quotactl/quotactl/budget"
	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/headroom"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// automatic is the status of a budget with a fixed headroom and an automatic one.
func automatic(drift int64) budget.Status {
	fixed := limit.Limit{Name: "hour", Quota: 100, Headroom: 5, Limit: 95, Counts: limit.CountUnits, Window: limit.RollingWindow(time.Hour)}
	parts := headroom.Parts{Known: true, Periods: 3, Drift: drift, InFlight: 11, Least: 2, Most: 50}
	auto := limit.Limit{Name: "day", Quota: 1000, Auto: 50, Counts: limit.CountUnits, Window: limit.RollingWindow(24 * time.Hour)}.WithHeadroom(parts.Units())
	return budget.Status{Budget: "up/key1", Limits: []budget.LimitStatus{{Limit: fixed}, {Limit: auto, Parts: &parts}}}
}

// The doctor says what automatic headrooms are made of, and warns of one that is too small.
func TestHeadroomFinding(t *testing.T) {
	f, some := headroomFinding(automatic(30))
	check.Equal(t, some, true)
	check.Equal(t, f, driver.Finding{Check: "automatic headroom of up/key1", Level: driver.OK, Says: "limit day keeps back 41: 30 drift, 11 in flight"}, "enough")
	f, _ = headroomFinding(automatic(40))
	check.Equal(t, f, driver.Finding{
		Check: "automatic headroom of up/key1", Level: driver.Warning, Says: "limit day keeps back 50, its maximum, of 51: 40 drift, 11 in flight",
		Advice: "raise max, or lower outage_allowance: until then the upstream may reject calls",
	}, "too small")
	_, some = headroomFinding(budget.Status{Limits: automatic(0).Limits[:1]})
	check.Equal(t, some, false, "none is automatic")
}

// The JSON has the present headroom and its parts; of a fixed one it has no parts.
func TestHeadroomInJSON(t *testing.T) {
	limits := NewBudget(automatic(30)).Limits
	check.Equal(t, limits[0].Parts, nil, "fixed")
	check.Equal(t, limits[0].Auto, false, "fixed")
	check.Equal(t, *limits[1].Headroom, 41, "headroom")
	check.Equal(t, limits[1].Limit, 959, "limit")
	check.Equal(t, limits[1].Auto, true, "automatic")
	check.Equal(t, string(must.Get(json.Marshal(limits[1].Parts))(t)),
		`{"drift":30,"in_flight":11,"clock":0,"outage":0,"least":2,"most":50,"known":true,"periods":3}`, "parts")
}
