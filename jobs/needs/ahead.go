package needs

// Ahead is what a job may still need until an instant: so many whole passes, and runs besides.
// Each may be tried again so often that it takes Times as much.
type Ahead struct {
	Run    func(region string) Estimate
	Times  int64
	Passes int64      // of all regions
	Parts  [][]string // further passes, of these regions
}

// Most is the sum of an amount over what is ahead, of a job with these regions; false if the
// needs of a run are unknown. It is never above the largest int64.
func (a Ahead) Most(regions []string, amount func(Estimate) int64) (sum int64, known bool) {
	add := func(region string, times int64) bool {
		e := a.Run(region)
		if e.Source == Unknown || e.Source == "" {
			return false
		}
		sum = plus(sum, by(by(amount(e), a.Times), times))
		return true
	}
	for _, region := range regions {
		if a.Passes > 0 && !add(region, a.Passes) {
			return 0, false
		}
	}
	for _, part := range a.Parts {
		for _, region := range part {
			if !add(region, 1) {
				return 0, false
			}
		}
	}
	return sum, true
}

// by is a product of two numbers that are not negative, at most the largest int64.
func by(a, b int64) int64 {
	const most = 1<<63 - 1
	if b > 0 && a > most/b {
		return most
	}
	return a * b
}
