package limit

import (
	"errors"
	"math/big"
	"strconv"
	"strings"
)

// mostDigits bounds the length of a number that is read, in bytes.
const mostDigits = 400

// Why a text is not a number of units.
var (
	errNoNumber = errors.New("it is not a number")
	errNegative = errors.New("it is negative")
	errTooMany  = errors.New("it is more than 10^15")
)

// ParseDecimal reads a number as JSON writes it, exactly: digits, with an optional sign,
// fraction and exponent. Unlike JSON, it also accepts a plus sign, leading zeroes, and
// blanks around the number.
func ParseDecimal(text string) (*big.Rat, bool) {
	text = strings.Trim(text, " \t")
	mantissa, exponent, hasExponent := text, "", false
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent, hasExponent = text[:i], text[i+1:], true
	}
	whole, fraction, hasFraction := strings.Cut(unsigned(mantissa), ".")
	power := unsigned(exponent)
	if len(text) > mostDigits || !isDigits(whole) || hasFraction && !isDigits(fraction) || hasExponent && !isDigits(power) {
		return nil, false
	}
	n, ok := new(big.Rat).SetString(mantissa)
	if !ok || !hasExponent {
		return n, ok
	}
	// A larger power makes no difference after rounding, because there are at most
	// mostDigits digits.
	const most = 2 * mostDigits
	by, err := strconv.ParseInt(power, 10, 64)
	if err != nil || by > most {
		by = most
	}
	scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(by), nil))
	if strings.HasPrefix(exponent, "-") {
		scale.Inv(scale)
	}
	return n.Mul(n, scale), true
}

// ParseUnits reads the cost of a call from a number as JSON writes it. It rounds a
// fraction up. The error says why the text is not a number of units, and does not contain
// the text.
func ParseUnits(text string) (int64, error) {
	n, ok := ParseDecimal(text)
	switch {
	case !ok:
		return 0, errNoNumber
	case n.Sign() < 0:
		return 0, errNegative
	case n.Cmp(new(big.Rat).SetInt64(MaxUnits)) > 0:
		return 0, errTooMany
	}
	return RoundUp(n).Int64(), nil
}

// RoundUp is the smallest whole number that is not less than n.
func RoundUp(n *big.Rat) *big.Int {
	less := new(big.Int).Sub(n.Denom(), big.NewInt(1))
	return less.Div(less.Add(less, n.Num()), n.Denom())
}

// unsigned takes one sign off a number.
func unsigned(s string) string {
	if s != "" && (s[0] == '+' || s[0] == '-') {
		return s[1:]
	}
	return s
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
