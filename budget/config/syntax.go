package config

import (
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/quotactl/quotactl/budget/limit"
)

// quotedWord and hugeNumber match the parts of the parser's messages that show a value.
var (
	quotedWord = lazily(`(['"])\S{4,}['"]`)
	hugeNumber = lazily(`^\S{4,} is out of`)
)

// syntaxText is the parser's message without the values in it, because a value without
// quotes may be a secret. It may show keys.
func syntaxText(message string) string {
	message = strings.TrimSuffix(message, ".")
	if strings.HasPrefix(message, "Key '") {
		return message
	}
	return hugeNumber().ReplaceAllString(quotedWord().ReplaceAllString(message, "$1…$1"), "a number is out of")
}

// syntaxLine is the line of a syntax error. It is counted from the offset, because the
// parser's own line is one too high if the error is at a line's end.
func syntaxLine(text string, at toml.Position) int {
	start := min(max(0, at.Start), len(text))
	return 1 + strings.Count(text[:start], "\n")
}

// What people often write that TOML writes differently. A value is what follows a key's
// '=', or the '[', ',' or '{' before it.
var (
	shortNumber   = lazily(`^([0-9]+(?:\.[0-9]+)?)([kKMG])$`)
	shortInside   = lazily(`[=\[{,]\s*([0-9.]+[kKMG])\s*[,}\]]`)
	groupedNumber = lazily(`^[0-9]{1,3}([,' .][0-9]{3})+$`)
	tomlNumber    = lazily(`^[0-9]+(_[0-9]+)*$`) // as TOML writes it without quotes
	bareShare     = lazily(`^[0-9.]+ ?%$`)
	bareSpan      = lazily(`^([0-9.]+(ns|us|µs|ms|s|m|h|d))+$`)
	bareWord      = lazily(`^[A-Za-z_./~-]`)
	openValue     = lazily(`[=\[{,]\s*("""|''')`)
	secretKey     = lazily(`(?i)^[^=]*(secret|password|token|key)[^=]*=`)
	lineValue     = lazily(`^[^=#]*=\s*([^#]*?)\s*(#.*)?$`)
)

// powers are the factors that a short number's letter means.
var powers = map[string]int64{"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}

// syntaxAdvice says what to write instead of a line that the parser refuses; empty if
// that is not known. Of the line it shows only numbers, and nothing at all if the line
// may contain a secret.
func syntaxAdvice(line string) string {
	value := ""
	if found := lineValue().FindStringSubmatch(line); found != nil {
		value = found[1]
	}
	number, isNumber := plainNumber(value)
	if found := shortInside().FindStringSubmatch(line); found != nil && !isNumber {
		number, isNumber = plainNumber(found[1])
	}
	secret := secretKey().MatchString(line)
	before, _, _ := strings.Cut(line, "#")
	switch {
	case isNumber && !secret:
		return "; write the number out: " + number
	case strings.ContainsAny(before, "“”„‟‘’«»"):
		return "; write a string, and a key with dots, in plain quotes, \"…\""
	case openValue().MatchString(line): // of several lines
		return ""
	case strings.Count(strings.ReplaceAll(line, `\"`, ""), `"`)%2 == 1,
		!strings.Contains(line, `"`) && strings.Count(before, `'`)%2 == 1:
		return "; a quote is missing in this line: a string, and a key with dots, begins and ends with one, \"…\""
	case bareSpan().MatchString(value) && !secret:
		return fmt.Sprintf("; write the span in quotes: %q", value)
	case bareShare().MatchString(value) && !secret:
		return fmt.Sprintf("; write the percentage in quotes: %q", strings.ReplaceAll(value, " ", ""))
	case bareWord().MatchString(value) || secret && value != "" && !strings.Contains(line, `"`):
		return "; write the string in quotes, \"…\""
	}
	return ""
}

// plainNumber converts a number with a letter, such as 10k, or with groups of digits,
// such as 10,000, into TOML's form.
func plainNumber(text string) (string, bool) {
	if groupedNumber().MatchString(text) {
		return strings.NewReplacer(",", "_", "'", "_", " ", "_", ".", "_").Replace(text), true
	}
	found := shortNumber().FindStringSubmatch(text)
	if found == nil {
		return "", false
	}
	n, ok := new(big.Rat).SetString(found[1])
	if !ok || !n.Mul(n, new(big.Rat).SetInt64(powers[found[2]])).IsInt() || n.Cmp(new(big.Rat).SetInt64(limit.MaxUnits)) > 0 {
		return "", false
	}
	return groups(n.Num().String()), true
}

// groups writes digits in groups of three.
func groups(digits string) string {
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "_" + digits[at:]
	}
	return digits
}

// FailUnquotedDots adds an error for each operation below the node that is written
// without quotes, such as search.list = 1: TOML reads that as a table search with a key
// list. The node itself may have the known keys. It reports whether it added any.
func (n Node) FailUnquotedDots(known ...string) bool {
	found := false
	for _, child := range n.children() {
		if slices.Contains(known, child.key) {
			continue
		}
		name := n.key + "." + child.key
		for deeper := child.children(); len(deeper) > 0 && !slices.Contains(known, deeper[0].key); deeper = child.children() {
			child = deeper[0]
			name += "." + child.key
		}
		dotted := strings.ReplaceAll(regexp.QuoteMeta(name), `\.`, `\s*\.\s*`)
		if regexp.MustCompile(`(^|[{,\s])` + dotted + `\s*[=.]`).MatchString(lineOf(n.doc.text, child.Line())) {
			child.Fail("%s without quotes is not one name, but a key of a table %q: write %q = …", name, n.key, name)
			found = true
		}
	}
	return found
}

// lineOf is a line of a text, counted from 1.
func lineOf(text string, n int) string {
	for line := range strings.SplitSeq(text, "\n") {
		if n--; n == 0 {
			return line
		}
	}
	return ""
}
