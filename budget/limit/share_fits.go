package limit

import "slices"

// Most is the most that a caller may ever take of the limit, in what it counts, if nothing
// else is used and the call does not count in the next period: the limit less what is
// guaranteed to other shares than its own (an index; −1: none) and does not lapse, by hours or
// by plan.
func (l Limit) Most(own int) int64 {
	most, guarantees := l.Limit, l.Guarantees()
	for i, s := range l.Shares {
		if i != own && !s.Plan && s.Lapse <= l.Window.Guard {
			most -= guarantees[i]
		}
	}
	return most
}

// mostSums bounds the work of Unspendable.
const mostSums = 100_000

// Unspendable is how much of a guarantee is left when calls at these prices have spent as
// much of it as they can: less than the lowest price. It is 0 if that is not known.
func Unspendable(guarantee int64, prices []int64) int64 {
	prices = slices.DeleteFunc(slices.Clone(prices), func(price int64) bool { return price <= 0 })
	slices.Sort(prices)
	prices = slices.Compact(prices)
	if len(prices) == 0 {
		return 0
	}
	divisor := int64(0)
	for _, price := range prices {
		divisor = gcd(price, divisor)
	}
	left, sum := guarantee%divisor, guarantee/divisor
	switch least := prices[0] / divisor; {
	case least == 1:
		return left
	case sum > mostSums/int64(len(prices)):
		return left // if the prices are small beside it, some sum of them is near enough
	}
	reached := make([]bool, sum+1)
	reached[0] = true
	best := int64(0)
	for n := range sum + 1 {
		for _, price := range prices {
			before := n - price/divisor
			reached[n] = reached[n] || before >= 0 && reached[before]
		}
		if reached[n] {
			best = n
		}
	}
	return left + (sum-best)*divisor
}
