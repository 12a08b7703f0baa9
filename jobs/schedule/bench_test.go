package schedule

import "testing"

func BenchmarkNext(b *testing.B) {
	for _, test := range []struct{ name, spec, zone string }{
		{"UTC", "0 3 * * *", "UTC"},
		{"UTC-minutes", "* * * * *", "UTC"},
		{"New_York", "30 2 * * *", "America/New_York"},
		{"New_York-minutes", "*/10 * * * *", "America/New_York"},
		{"leap-days", "0 0 29 2 *", "America/New_York"},
		{"every", "@every 90m", "UTC"},
	} {
		b.Run(test.name, func(b *testing.B) {
			s, err := Parse(test.spec, test.zone)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			at := firstDay
			for b.Loop() {
				if at = s.Next(at); at.Year() > 2030 {
					at = firstDay
				}
			}
		})
	}
}

func BenchmarkBetween(b *testing.B) {
	s, err := Parse("* * * * 1-5", "America/New_York")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Between(firstDay, firstDay.AddDate(1, 0, 0), 1000)
	}
}
