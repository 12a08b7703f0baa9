package simulate

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

var update = flag.Bool("update", false, "write the figures of a month (in full), and the picture of them")

// The figures of one month, and the picture that is drawn from them.
var (
	figuresFile  = filepath.Join("testdata", "month.json")
	pictures     = filepath.Join("..", "..", "docs", "pictures")
	monthPicture = filepath.Join(pictures, "month.svg")
)

// figures is what the picture shows of a month.
type figures struct {
	Seed uint64       `json:"seed"`
	Days []dayFigures `json:"days"`
}

// dayFigures is one day, with daemons and with a crontab.
type dayFigures struct {
	Day     string `json:"day"`
	Daemons spent  `json:"daemons"`
	Crontab spent  `json:"crontab"`
}

// spent is what the upstream counted in a day, and how many searches were kept.
type spent struct {
	Units    int64 `json:"units"`
	Rejected int64 `json:"rejected"`
	Searches int64 `json:"searches"`
}

// The recorded figures are those that the simulation gives: no figure differs by
// more than 4 in 100, since retries are spread anew each time. The crontab's month is
// always simulated, the daemons' with full effort only.
func TestFigures(t *testing.T) {
	effort.Unraced(t)
	recorded := readFigures(t)
	m := draw(t, ordinary, recorded.Seed, 0)
	must.Equal(t, len(recorded.Days), m.days, "days")
	theirs := alone(t, m)
	for i, day := range recorded.Days {
		check.Equal(t, day.Day, m.midnight(i).Format(time.DateOnly))
		recorded.Days[i].Crontab = updated(t, day.Day+", crontab", day.Crontab, theirs.days[i])
	}
	if !effort.Of(false, false, true) {
		return
	}
	ours := live(t, m, "")
	for i, day := range recorded.Days {
		recorded.Days[i].Daemons = updated(t, day.Day+", daemons", day.Daemons, ours.days[i])
	}
	if *update {
		text := must.Get(json.MarshalIndent(recorded, "", "  "))(t)
		must.Do(t, os.WriteFile(figuresFile, append(text, '\n'), 0o600))
	}
}

// updated is a day as it was simulated now; unless -update, it is near what is recorded.
func updated(t *testing.T, what string, recorded spent, simulated day) spent {
	t.Helper()
	now := spent{simulated.Units, simulated.Rejected, int64(simulated.searches)}
	for _, pair := range [][2]int64{{recorded.Units, now.Units}, {recorded.Rejected, now.Rejected}, {recorded.Searches, now.Searches}} {
		if !*update && math.Abs(float64(pair[1]-pair[0])) > 0.04*float64(pair[0]) {
			t.Errorf("%s: %+v, recorded are %+v: QUOTACTL_EFFORT=full go test ./internal/simulate -run 'TestFigures|TestPicture' -update", what, now, recorded)
			break
		}
	}
	return now
}

// The picture in the documentation is drawn from the recorded figures.
func TestPicture(t *testing.T) {
	picture := readFigures(t).picture(t)
	if *update {
		must.Do(t, os.WriteFile(monthPicture, []byte(picture), 0o600))
	}
	if string(must.Get(os.ReadFile(monthPicture))(t)) != picture {
		t.Errorf("%s does not show %s: go test ./internal/simulate -run TestPicture -update", monthPicture, figuresFile)
	}
}

func readFigures(t *testing.T) (f figures) {
	t.Helper()
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile(figuresFile))(t), &f))
	return f
}

// The picture's measures.
const (
	left, right = 72, 776 // of the bars
	high        = 110     // of the longest bar
	panelHigh   = 178     // with its headings
	firstPanel  = 56
)

// picture is the figures as SVG: a panel for each, a pair of bars for each day.
func (f figures) picture(t *testing.T) string {
	t.Helper()
	first := must.Get(time.Parse(time.DateOnly, f.Days[0].Day))(t)
	title := fmt.Sprintf("A simulated month, %s: daemons beside a crontab", first.Format("January 2006"))
	panels := []struct {
		heading, sums string
		value         func(spent) int64
		top           int64
	}{
		{heading: fmt.Sprintf("Units spent of the %s that the upstream grants a day", grouped(quota)), value: func(s spent) int64 { return s.Units }, top: quota},
		{heading: "Calls that the upstream rejected", value: func(s spent) int64 { return s.Rejected }},
		{heading: "Searches kept", value: func(s spent) int64 { return s.Searches }},
	}
	var body strings.Builder
	desc := fmt.Sprintf("Three bar charts by days, of the month with seed %d.", f.Seed)
	y := firstPanel
	for i, p := range panels {
		var ours, theirs int64
		for _, d := range f.Days {
			ours, theirs = ours+p.value(d.Daemons), theirs+p.value(d.Crontab)
			p.top = max(p.top, p.value(d.Daemons), p.value(d.Crontab))
		}
		p.sums = fmt.Sprintf("daemons %s, crontab %s in the month", grouped(ours), grouped(theirs))
		desc += fmt.Sprintf(" %s: %s.", p.heading, p.sums)
		zero := y + panelHigh - 20
		_, _ = fmt.Fprintf(&body, `<text class="h" x="24" y="%d">%s</text><text class="s" x="24" y="%d">%s</text>`+"\n", y+14, p.heading, y+33, p.sums)
		f.bars(&body, zero, p.top, p.value)
		if i == 0 {
			level := float64(zero) - high*float64(limit)/float64(p.top)
			_, _ = fmt.Fprintf(&body, `<path class="line open" d="M%d %.1fH%d"/><text class="s end" x="%d" y="%d">dashed: the limit, %s</text>`+"\n", left, level, right, right, y+33, grouped(limit))
		}
		y += panelHigh
	}
	for i := 0; i < len(f.Days); i += 7 {
		_, _ = fmt.Fprintf(&body, `<text class="s mid" x="%.1f" y="%d">%d</text>`+"\n", f.place(i)+f.slot()/2, y, i+1)
	}
	_, _ = fmt.Fprintf(&body, `<text class="s end" x="%d" y="%d">day</text>`+"\n", left-8, y)
	y += 18
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 %[1]d" role="img" aria-labelledby="title desc">
<title id="title">%[2]s</title>
<desc id="desc">%[3]s</desc>
%[4]s
<rect class="paper" x=".5" y=".5" width="799" height="%[5]d" rx="8"/>
<text class="h" x="24" y="34">%[2]s</text>
<rect class="full blue" x="560" y="22" width="14" height="14"/><text x="580" y="34">daemons</text>
<rect class="full amber" x="680" y="22" width="14" height="14"/><text x="700" y="34">crontab</text>
%[6]s</svg>
`, y, title, desc, style(t), y-1, &body)
}

// bars draws each day's two values above a line.
func (f figures) bars(to *strings.Builder, zero int, top int64, value func(spent) int64) {
	_, _ = fmt.Fprintf(to, `<path class="thin" d="M%d %dH%dM%d %dH%d"/><text class="s end" x="%d" y="%d">%s</text><text class="s end" x="%d" y="%d">0</text>`+"\n",
		left, zero-high, right, left, zero, right, left-8, zero-high+5, grouped(top), left-8, zero+5)
	wide := 0.4 * f.slot()
	for i, d := range f.Days {
		x := f.place(i) + f.slot()/2 - wide
		for _, bar := range []struct {
			class string
			value int64
		}{{"blue", value(d.Daemons)}, {"amber", value(d.Crontab)}} {
			long := high * float64(bar.value) / float64(top)
			_, _ = fmt.Fprintf(to, `<rect class="full %s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, bar.class, x, float64(zero)-long, wide, long)
			x += wide
		}
		_, _ = fmt.Fprintln(to)
	}
}

// slot is how wide a day is; place is where it begins.
func (f figures) slot() float64         { return float64(right-left) / float64(len(f.Days)) }
func (f figures) place(day int) float64 { return left + float64(day)*f.slot() }

// style is what all pictures begin with, read from another one.
func style(t *testing.T) string {
	t.Helper()
	_, rest, _ := strings.Cut(string(must.Get(os.ReadFile(filepath.Join(pictures, "parts.svg")))(t)), "</desc>\n")
	text, _, found := strings.Cut(rest, "</style>")
	if !found {
		t.Fatal("parts.svg has no style")
	}
	return text + "</style>"
}

// grouped is a number with a comma at each thousand.
func grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
