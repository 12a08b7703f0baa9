package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/quotactl/quotactl/jobs/schedule"
)

// day is a random configuration, and what is known of the day on which it is tried.
type day struct {
	seed         uint64
	config       string
	start, until time.Time
	// learned: the needs are not configured; runs take pages around a mean.
	learned bool
	spread  spread
	luck    uint64 // another draws the pages of all runs again
	jobs    []drawnJob
	before  []charge // that were made before the start
	lock    lock     // zero: none
	// down is how long no daemon was running before the start; 0: the daemon begins with new documents.
	down time.Duration

	chances chances
	has     map[string]bool // what it has of the features that are counted
}

// chances are how often a job of the day has what most jobs have not, in percent.
type chances struct{ hold, deferral, share, floor, odd int }

// drawnJob is what a day knows of a job.
type drawnJob struct {
	name, budget, operation string
	spec, zone              string
	regions                 []string
	stagger                 time.Duration
	price                   int64
	pages                   int // of a run: exactly, or about if they are to be learned
	share                   bool
}

// charge is one that was made before the day.
type charge struct {
	at          time.Time
	budget, job string
	operation   string
	units       int64
}

// lock is one that ends in the day.
type lock struct {
	budget string
	span   time.Duration // from the start
}

// demand is what one run asks for.
type demand struct {
	at           time.Time
	operation    string
	units, calls int64
}

var (
	allRegions = []string{"US", "GB", "DE", "FR", "IN", "BR", "AU", "CA"}
	zones      = []string{"UTC", "UTC", "America/Los_Angeles", "Europe/Berlin", "Asia/Kolkata", "America/New_York"}
	operations = []string{"search.list", "captions.list", "videos.list", "channels.list"}
)

// mostCalls bounds the calls of a day, since the memory store sums its ledger for each.
const mostCalls = 1500

// dice draws.
type dice struct{ *rand.Rand }

func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

func pick[V any](d dice, of ...V) V { return of[d.IntN(len(of))] }

// draw is the day of a seed; an attempt may yield no valid configuration; learned says whether
// needs are to be learned.
func draw(seed, attempt uint64, learned bool) *day {
	d := dice{rand.New(rand.NewPCG(seed, attempt))}
	start := time.Date(2026, time.Month(2+d.IntN(10)), 1+d.IntN(28), d.IntN(24), d.IntN(60), 30, 0, time.UTC)
	y := &day{seed: seed, learned: learned, start: start, until: start.Add(time.Duration(24+d.IntN(25)) * time.Hour), has: map[string]bool{}}
	of := func(percent int) int { // most days have none
		if d.chance(20) {
			return percent
		}
		return 0
	}
	y.chances = chances{hold: of(40), deferral: of(50), share: of(50), floor: of(30), odd: of(40) + 5}
	if d.chance(10) {
		y.down = time.Duration(10+d.IntN(500)) * time.Minute
	}
	budgets := []string{"alpha/key1"}
	if d.chance(30) {
		budgets = append(budgets, "beta/key1")
	}
	prices := map[string]int64{}
	for _, o := range operations {
		prices[o] = pick(d, 1, 1, 2, 5, 10, 50, 100, 1+d.Int64N(100))
	}
	var tables []string
	for i := range 2 + d.IntN(7) {
		tables = append(tables, y.drawJob(d, i, budgets, prices))
	}
	var text strings.Builder
	for _, b := range budgets {
		text.WriteString(y.drawUpstream(d, b, prices))
	}
	for _, t := range tables {
		text.WriteString(t)
	}
	y.config = text.String()
	y.drawBefore(d)
	return y
}

// drawSchedule is when a job ticks: seldom if a pass takes many calls.
func drawSchedule(d dice, seldom bool) string {
	minute := pick(d, 0, 0, 5, 17, 30, 59)
	often := []string{
		fmt.Sprintf("%d * * * *", minute), "*/30 * * * *", "7,37 * * * *", "@every 45m", "*/20 6-12 * * *", fmt.Sprintf("%d 9-17 * * *", minute),
	}
	rare := []string{
		fmt.Sprintf("%d */3 * * *", minute), fmt.Sprintf("%d */6 * * *", minute), fmt.Sprintf("%d %d,%d * * *", minute, d.IntN(12), 12+d.IntN(12)),
		fmt.Sprintf("%d %d * * *", minute, d.IntN(24)), "@every 5h",
	}
	if seldom || d.chance(40) {
		return pick(d, rare...)
	}
	return pick(d, often...)
}

// drawJob draws a job's table.
func (y *day) drawJob(d dice, number int, budgets []string, prices map[string]int64) string {
	j := drawnJob{name: fmt.Sprintf("%c%d", 'a'+d.IntN(26), number), budget: pick(d, budgets...), operation: pick(d, operations...)}
	j.price = prices[j.operation]
	j.regions = allRegions[:1+d.IntN(len(allRegions))]
	j.pages = pick(d, 1, 1, 2, 3, 4, 6, 12)
	if y.learned {
		j.pages = 3 + d.IntN(10)
	}
	j.spec, j.zone = drawSchedule(d, len(j.regions)*j.pages > 12), pick(d, zones...)
	if last := len(y.jobs) - 1; last >= 0 && d.chance(35) { // at the same minute
		j.spec, j.zone = y.jobs[last].spec, y.jobs[last].zone
	}
	for j.calls(y.start, y.until) > mostCalls/4 {
		j.spec = drawSchedule(d, true)
		j.pages, j.regions = max(1, j.pages/2), j.regions[:(len(j.regions)+1)/2]
	}
	var b strings.Builder
	line := func(format string, values ...any) { fmt.Fprintf(&b, format+"\n", values...) }
	line("\n[job.%s]\nbudget = %q\nschedule = %q\nregions = [%s]", j.name, j.budget, j.spec, quoted(j.regions))
	if !strings.HasPrefix(j.spec, "@") {
		line("timezone = %q", j.zone)
	}
	parallel := pick(d, 0, 0, 0, 1, 1, 1, 2, 3)
	if parallel > 0 {
		line("parallel = %d", parallel)
	}
	if len(j.regions) > 1 && (parallel != 1 || d.chance(30)) { // regions that start at one instant would be in no fixed order
		j.stagger = pick(d, time.Second, 30*time.Second, 2*time.Minute, 8*time.Minute, 15*time.Minute, 50*time.Minute)
		line("stagger = %q", j.stagger)
	}
	if d.chance(15) {
		line("max_wait = %q", pick(d, "0s", "10s", "1m", "4m"))
	}
	allows := false
	if d.chance(y.chances.odd) {
		overlap := pick(d, "queue", "allow")
		line("overlap = %q", overlap)
		allows, y.has["overlap"] = overlap == "allow", true
	}
	if d.chance(y.chances.odd) {
		line("catch_up = %q", pick(d, "last", "all"))
		y.has["catch-up"] = y.has["catch-up"] || y.down > 0
	}
	if d.chance(y.chances.hold) {
		line("hold = %s", pick(d, "true", `"run"`))
		y.has["hold"] = true
	}
	if d.chance(y.chances.deferral) {
		line("on_exhausted = \"defer\"")
		y.has["deferral"] = true
		if !allows && d.chance(40) {
			line("checkpoint = \"24h\"")
		}
	}
	switch {
	case d.chance(y.chances.floor):
		line("floor = %d", pick[int64](d, 1, 10, 50)*j.price)
		y.has["floor"] = true
	case d.chance(y.chances.share):
		j.share = true
	}
	bound := d.chance(50)
	if !y.learned && !bound {
		line("needs = { %q = %d }", j.operation, j.pages)
	}
	resource, _, _ := strings.Cut(j.operation, ".")
	line("[job.%s.fetch]\noperation = %q\nsecret = { query = \"key\" }\nnext_page = { param = \"pageToken\", from = \"nextPageToken\" }", j.name, j.operation)
	line("url = \"https://upstream.test/youtube/v3/%s?part=snippet&maxResults=1&regionCode={region}&job={job}&tick={tick}\"", resource)
	line("output = \"data/{job}/{region}/{tick}.ndjson\"")
	if !y.learned && bound {
		line("max_pages = %d", j.pages)
	}
	y.jobs = append(y.jobs, j)
	return b.String()
}

// calls is how many calls the job makes.
func (j *drawnJob) calls(from, until time.Time) int {
	s, err := schedule.Parse(j.spec, j.zone)
	if err != nil {
		panic(err)
	}
	count, _, _ := s.Between(from, until, 0)
	return count * len(j.regions) * j.pages
}

// demands are what the jobs of a budget ask for in the day, by instant.
func (y *day) demands(budget string) (list []demand) {
	for _, j := range y.jobs {
		s, err := schedule.Parse(j.spec, j.zone)
		if err != nil {
			panic(err)
		}
		for at := s.Next(y.start); j.budget == budget && !at.After(y.until); at = s.Next(at) {
			for place := range j.regions {
				offset := time.Duration(place) * j.stagger / time.Duration(len(j.regions))
				list = append(list, demand{at.Add(offset), j.operation, j.price * int64(j.pages), int64(j.pages)})
			}
		}
	}
	slices.SortFunc(list, func(a, b demand) int { return a.at.Compare(b.at) })
	return list
}

// most is the most that is asked for in any span.
func most(list []demand, span time.Duration, amount func(demand) int64) (most int64) {
	sum, first := int64(0), 0
	for _, one := range list {
		sum += amount(one)
		for ; !list[first].at.After(one.at.Add(-span)); first++ {
			sum -= amount(list[first])
		}
		most = max(most, sum)
	}
	return most
}

// drawUpstream draws an upstream's tables: its limits are about what is asked for.
func (y *day) drawUpstream(d dice, budget string, prices map[string]int64) string {
	name, _, _ := strings.Cut(budget, "/")
	list := y.demands(budget)
	var b strings.Builder
	line := func(format string, values ...any) { fmt.Fprintf(&b, format+"\n", values...) }
	line("\n[upstream.%s]", name)
	if d.chance(12) {
		line("parallel = %d", 1+d.IntN(3))
		y.has["upstream's parallel"] = true
	}
	line("[upstream.%s.costs]", name)
	for _, o := range operations {
		line("%q = %d", o, prices[o])
	}
	line("[upstream.%s.credential.key1]\nsecret_env = \"KEY\"", name)
	limits := pick(d, 1, 1, 2, 2, 3, 4)
	y.has["several limits"] = y.has["several limits"] || limits > 1 && len(list) > 0
	var divided []string // calendars that a share may divide
	for i := range limits {
		calendar := y.drawLimit(d, name, i, list, line)
		if calendar != "" {
			divided = append(divided, calendar)
		}
	}
	y.drawShare(d, name, budget, divided, line)
	return b.String()
}

// drawLimit draws a limit of an upstream; it returns its name if that is a calendar which all calls count in.
func (y *day) drawLimit(d dice, upstream string, number int, list []demand, line func(string, ...any)) (calendar string) {
	name := fmt.Sprintf("l%d", number)
	line("[upstream.%s.limit.%s]", upstream, name)
	amount, whole := func(one demand) int64 { return one.units }, true
	if number > 0 && d.chance(30) {
		line("counts = \"calls\"")
		amount, whole = func(one demand) int64 { return one.calls }, false
	}
	if number > 0 && d.chance(30) {
		only, counted := pick(d, operations...), amount
		line("operations = [%q]", only)
		amount, whole = func(one demand) int64 {
			if one.operation != only {
				return 0
			}
			return counted(one)
		}, false
	}
	kind := d.IntN(10)
	if number > 0 && kind < 3 {
		kind = 3 + d.IntN(7)
	}
	span, window := 24*time.Hour, ""
	switch kind {
	case 0, 1, 2, 3:
		window = fmt.Sprintf("calendar = \"day\"\ntimezone = %q", pick(d, "America/Los_Angeles", "America/Los_Angeles", "UTC"))
	case 4:
		window, span = "calendar = \"hour\"", time.Hour
	case 5, 6:
		window = "window = \"24h\""
	case 7:
		span = pick(d, time.Hour, 6*time.Hour, 30*time.Minute, 10*time.Minute)
		window = fmt.Sprintf("window = %q", span)
	case 8:
		y.has["coarse"] = true
		window, span = pick(d, "window = \"24h\"\nprecision = \"10m\"", "window = \"24h\"\nprecision = \"1h\""), 24*time.Hour
	default:
		if number == 0 {
			window = "calendar = \"day\"\ntimezone = \"UTC\""
			break
		}
		span, y.has["bucket"] = pick(d, time.Hour, 24*time.Hour), true
		peak := max(1, most(list, span, amount))
		fill := pick[int64](d, 20, 50, 100, 200)
		line("limit = %d\nrefill = \"%d/%s\"", max(1, peak*pick[int64](d, 30, 60, 100)/100), max(1, peak*fill/100), strings.TrimSuffix(span.String(), "0m0s"))
		return ""
	}
	line("%s", window)
	part := pick[int64](d, 50, 70, 85, 95, 100, 105, 120, 150)
	bound := max(1, most(list, span, amount)*part/100)
	if d.chance(25) && bound > 20 {
		line("quota = %d\nheadroom = %d", bound, bound/10)
	} else {
		line("limit = %d", bound)
	}
	if kind < 4 && d.chance(15) {
		line("guard = \"5s\"")
	}
	if kind < 4 && whole {
		return name
	}
	return ""
}

// drawShare draws a share for the jobs that are to have one.
func (y *day) drawShare(d dice, upstream, budget string, calendars []string, line func(string, ...any)) {
	var names []string
	for _, j := range y.jobs {
		if j.share && j.budget == budget {
			names = append(names, j.name)
		}
	}
	if len(names) == 0 {
		return
	}
	y.has["share"] = true
	line("[upstream.%s.share.feeds]\njobs = [%s]\nunits = \"%d%%\"", upstream, quoted(names), pick(d, 10, 25, 40, 60))
	byPlan := d.chance(15)
	if byPlan {
		line("lapse = \"plan\"")
	}
	if len(calendars) > 0 && d.chance(50) {
		line("limits = [%s]", quoted(calendars))
		if d.chance(60) && !byPlan {
			line("lapse = %q", pick(d, "1h", "3h", "8h"))
		}
	}
}

// drawBefore draws what happened before the day.
func (y *day) drawBefore(d dice) {
	if d.chance(50) {
		y.has["charged before"] = true
		for range 3 + d.IntN(30) {
			j := y.jobs[d.IntN(len(y.jobs))]
			one := charge{at: y.start.Add(-time.Duration(d.Int64N(int64(26 * time.Hour)))), budget: j.budget, operation: j.operation, units: j.price * int64(1+d.IntN(3*j.pages))}
			if d.chance(60) {
				one.job = j.name
			}
			y.before = append(y.before, one)
		}
		slices.SortFunc(y.before, func(a, b charge) int { return a.at.Compare(b.at) })
	}
	if d.chance(10) {
		y.has["lock"] = true
		y.lock = lock{y.jobs[0].budget, time.Duration(10+d.IntN(600)) * time.Minute}
	}
}

func quoted(names []string) string { return `"` + strings.Join(names, `", "`) + `"` }
