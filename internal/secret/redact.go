package secret

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// redactedSecret replaces a secret.
const redactedSecret = "[secret]"

// MaxSought is the longest secret that is searched for, in bytes; a text that may contain
// a longer one is not shown at all.
const MaxSought = 512

// Edge is how many bytes at the end of a shortened text are not shown, since a secret may
// begin in them.
const Edge = 16 << 10

// NotShown replaces a text that may contain a secret too long to search for.
const NotShown = "(not shown, as it may contain the secret)"

// Redact removes the secret from a text, however an upstream, a proxy or the network
// wrote it.
func Redact(text, secret string) string {
	if secret == "" {
		return text
	}
	if len(secret) > MaxSought {
		return NotShown
	}
	return hide(text, matchers(secret))
}

// Short is the length in characters below which a secret is removed only where it is a whole
// word: it may be a part of many others.
const Short = 8

// matcher finds a secret in a text.
type matcher struct {
	*regexp.Regexp
	word bool // as a whole word only
}

// find adds to a list where the secret is.
func (m matcher) find(found [][2]int, text string) [][2]int {
	for from := 0; ; {
		at := m.FindStringIndex(text[from:])
		if at == nil {
			return found
		}
		start, end := from+at[0], from+at[1]
		if from = end; !m.word || isWord(text, start, end) {
			found = append(found, [2]int{start, end})
			continue
		}
		_, size := utf8.DecodeRuneInString(text[start:])
		from = start + size
	}
}

// isWord reports whether a part of a text is no part of a longer word. The end of an escape,
// such as of %3D, belongs to no word.
func isWord(text string, start, end int) bool {
	letter := func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }
	before, _ := utf8.DecodeLastRuneInString(text[:start])
	after, _ := utf8.DecodeRuneInString(text[end:])
	return !letter(after) && (!letter(before) || escapeEnd().MatchString(text[max(0, start-longestEscape):start]))
}

const longestEscape = 16

var escapeEnd = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:%(?:25)*[0-9A-Fa-f]{2}|\\(?:[abfnrtv]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}))$`)
})

// matchers match the secret even if each of its characters is itself or escaped as in URLs,
// JSON or HTML, each in a different way, also in UTF-16; and if all of it is written in
// hexadecimal or base64.
func matchers(secret string) []matcher {
	var expression strings.Builder
	for rest := secret; len(rest) > 0; {
		_, size := utf8.DecodeRuneInString(rest)
		if expression.Len() > 0 {
			expression.WriteString(`\x00*`)
		}
		expression.WriteString(characterForm(rest[:size]))
		rest = rest[size:]
	}
	all := []matcher{{regexp.MustCompile(expression.String()), utf8.RuneCountInString(secret) < Short}} // every character is quoted
	if forms := encodedForms(secret); forms != nil {
		all = append(all, matcher{regexp.MustCompile(strings.Join(forms, "|")), false})
	}
	for _, m := range all {
		m.Longest() // nothing of an escape is left behind
	}
	return all
}

// characterForm matches a character in any of its forms.
func characterForm(character string) string {
	r, size := utf8.DecodeRuneInString(character)
	forms := []string{regexp.QuoteMeta(string(r)), percentForm(character)}
	if r == utf8.RuneError && size == 1 { // not a character: a byte
		forms = append(forms, fmt.Sprintf(`\\+x(?i:%02x)`, character[0]))
	} else {
		forms = append(forms, jsonForms(r)...)
		forms = append(forms, htmlForm(r))
	}
	if r == ' ' {
		forms = append(forms, `\+`, percentForm("+"))
	}
	return "(?:" + strings.Join(forms, "|") + ")"
}

// minEncoded is the shortest secret that is searched for in hexadecimal and base64, in
// bytes: shorter ones would match anywhere.
const minEncoded = 4

// encodedForms match the secret if it is encoded as a whole, or as a part of more, such
// as the user and password of a header.
func encodedForms(secret string) []string {
	if len(secret) < minEncoded {
		return nil
	}
	digits := make([]string, len(secret))
	for i := range len(secret) {
		digits[i] = fmt.Sprintf("%02x", secret[i])
	}
	forms := []string{"(?i:" + strings.Join(digits, "[ :-]?") + ")"}
	for before := range 3 { // in bytes; a fourth offset is like the first
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("x", before) + secret))
		// The characters at both ends encode bits of the neighbours, too.
		first, end := (8*before+5)/6, (8*before+8*len(secret))/6
		form := ""
		for _, r := range text[first:end] {
			switch r {
			case '+': // or as in base64 for URLs
				form += "(?:" + characterForm("+") + "|-)"
			case '/':
				form += "(?:" + characterForm("/") + "|_)"
			default:
				form += string(r)
			}
		}
		forms = append(forms, form)
	}
	return forms
}

// percentForm matches bytes as a URL escapes them, once or several times.
func percentForm(bytes string) string {
	form := ""
	for i := range len(bytes) {
		form += fmt.Sprintf("%%(?:25)*(?i:%02x)", bytes[i])
	}
	return form
}

// jsonForms match a character as JSON and programming languages escape it; a string
// within a string has several backslashes.
func jsonForms(r rune) []string {
	const open = `\\+`
	form := ""
	for _, unit := range utf16.AppendRune(nil, r) {
		form += fmt.Sprintf(`%su(?i:%04x)`, open, unit)
	}
	forms := []string{form, fmt.Sprintf(`%sU(?i:%08x)`, open, r)}
	if r < utf8.RuneSelf {
		forms = append(forms, fmt.Sprintf(`%sx(?i:%02x)`, open, r))
	}
	if short, ok := map[rune]string{'\a': "a", '\v': "v", '\b': "b", '\t': "t", '\n': "n", '\f': "f", '\r': "r"}[r]; ok {
		forms = append(forms, open+short)
	}
	if r < utf8.RuneSelf && !isAlphanumeric(r) {
		forms = append(forms, open+regexp.QuoteMeta(string(r)))
	}
	return forms
}

// htmlForm matches a character as HTML and XML escape it, by number or name.
func htmlForm(r rune) string {
	forms := []string{fmt.Sprintf("#0*%d", r), fmt.Sprintf("#[xX]0*(?i:%x)", r)}
	if names, ok := htmlNames[r]; ok {
		forms = append(forms, "(?i:"+names+")")
	}
	return "&(?:amp;)*(?:" + strings.Join(forms, "|") + ");?"
}

func isAlphanumeric(r rune) bool {
	return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// htmlNames are HTML's names of the ASCII characters, as alternatives of an expression.
var htmlNames = map[rune]string{
	'\t': "Tab", '\n': "NewLine", ' ': "nbsp", '!': "excl", '"': "quot", '#': "num", '$': "dollar", '%': "percnt",
	'&': "amp", '\'': "apos", '(': "lpar", ')': "rpar", '*': "ast|midast", '+': "plus", ',': "comma", '.': "period",
	'/': "sol", ':': "colon", ';': "semi", '<': "lt", '=': "equals", '>': "gt", '?': "quest", '@': "commat",
	'[': "lsqb|lbrack", '\\': "bsol", ']': "rsqb|rbrack", '^': "Hat", '_': "lowbar|UnderBar",
	'`': "grave|DiacriticalGrave", '{': "lcub|lbrace", '|': "verbar|vert|VerticalLine", '}': "rcub|rbrace",
}
