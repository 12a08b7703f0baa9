package limit

import (
	"math/big"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

// What a call has cost is any number of JSON, and a part of a unit is one.
func TestParseUnits(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "-0.0e9": 0, "7": 7, " 7\t": 7, "+7": 7, "007": 7, "7.0": 7, "2.5": 3, "2.000000000000000000000000001": 3, "1e1": 10, "1E+1": 10,
		"25e-1": 3, "0.1e-300": 1, "1e-99999999999999999999": 1, "0e99999999999999999999": 0, "1e15": MaxUnits, "999999999999999.1": MaxUnits, "1000000000000000.0": MaxUnits,
		"0." + strings.Repeat("0", mostDigits-3) + "1": 1, strings.Repeat("0", mostDigits-1) + "1": 1,
	} {
		check.Equal(t, must.Get(ParseUnits(text))(t), want, text)
	}
	for text, want := range map[string]error{
		"-1": errNegative, "-0.5": errNegative, "-1e-99999999999999999999": errNegative, "1e16": errTooMany, "1e99999999999999999999": errTooMany,
		"1000000000000000.1": errTooMany, "1000000000000001": errTooMany, "9223372036854775808": errTooMany,
	} {
		if got, err := ParseUnits(text); err != want { //nolint:errorlint // it is that one
			t.Errorf("%q is %d, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", " ", "-", "+", ".", "5.", ".5", "e1", "1e", "1e+", "1e1.5", "1e1e1", "NaN", "nan", "Inf", "Infinity", "-Infinity", "0x10", "0b1", "1_000", "1,000", "1 000",
		"--1", "+-1", "1/2", "1p3", strings.Repeat("0", mostDigits+1), "٣", "null", "true", "12 units", "1.0.0", "1.-0", "1e--1",
	} {
		if got, err := ParseUnits(text); err != errNoNumber { //nolint:errorlint // it is that one
			t.Errorf("%q is %d, %v; want none", text, got, err)
		}
		if n, ok := ParseDecimal(text); ok {
			t.Errorf("%q is %v, want none", text, n)
		}
	}
}

// Rounded up is never less, and by less than one more.
func FuzzParseUnits(f *testing.F) {
	for _, seed := range []string{"0", "2.5", "1e1", "25e-1", "-0.5", "1e16", "1e99999999999", "NaN", "0x10", "1/2", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, ok := ParseDecimal(text)
		units, err := ParseUnits(text)
		if err == nil && !ok {
			t.Fatalf("%q is %d, and no number", text, units)
		}
		if err != nil {
			return
		}
		more := new(big.Rat).Sub(new(big.Rat).SetInt64(units), n)
		if units < 0 || units > MaxUnits || more.Sign() < 0 || more.Cmp(big.NewRat(1, 1)) >= 0 {
			t.Fatalf("%q is %v, and %d units", text, n, units)
		}
	})
}
