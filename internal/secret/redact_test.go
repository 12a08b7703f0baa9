package secret

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
	"pgregory.net/rapid"
)

func TestRedactKnowsHowASecretIsWritten(t *testing.T) {
	for _, test := range []struct{ secret, text string }{
		{"ab/cd", `ab/cd`},
		{"ab/cd", `ab\/cd`},
		{"ab/cd", `ab\\\/cd`},
		{"ab/cd", `ab\u002Fcd`},
		{"ab/cd", `ab\x2fcd`},
		{"ab/cd", `ab%2fcd`},
		{"ab/cd", `ab%252Fcd`},
		{"ab/cd", `%61b&#47;cd`},
		{"ab/cd", `ab&#x2F;c&#0100;`},
		{"ab/cd", `ab&sol;cd`},
		{"ab/cd", `ab&amp;sol;cd`},
		{"S3CRET/key+a b", `S3CRET/key%2Ba%20b`},
		{"S3CRET/key+a b", `S3CRET%2Fkey%2Ba+b`},
		{`a"b&c<d`, `a\"b\u0026c\u003cd`},
		{`a"b&c<d`, `a&quot;b&amp;c&lt;d`},
		{`a'b`, `a&#39;b`},
		{`a\b`, `a\\b`},
		{"ab/cd", "a\x00b\x00/\x00c\x00d"},
		{"ab/cd", "61622f6364"},
		{"ab/cd", "61622F6364"},
		{"ab/cd", "61:62:2f:63:64"},
		{"100%", "100%25"},
		{"é😀", `%C3%A9\ud83d\uDE00`},
		{"é😀", `&#233;&#x1F600;`},
		{"a\xffb", "a\xffb"},
		{"a\xffb", "a%FFb"},
		{"a\xffb", "a\uFFFDb"},
		{"a\xffb", `a\xffb`},
		{"a\a\vb", `a\a\vb`},
		{"\U000F0000x", `\U000f0000x`},
	} {
		check.Equal(t, Redact("<"+test.text+"> and "+test.text, test.secret), "<[secret]> and [secret]", "secret", test.secret, "in", test.text)
	}
	for _, text := range []string{"", "the ab of cd", "ab/c", "AB/CD"} {
		if got := Redact(text, "ab/cd"); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	check.Equal(t, Redact("any", ""), "any", "without a secret")
}

// base64 writes a secret in three ways, by the length of the text before it. The characters
// at the ends are its neighbours' too.
func TestRedactKnowsBase64(t *testing.T) {
	for _, secret := range []string{"abcd", "S3CRET/key+a b", "\xff\xfb\xf0\xff\xfb\xf0", "subjects?_d=~~~"} {
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding} {
			for _, around := range []string{"", "u", "us", "use", "user"} {
				whole := encoding.EncodeToString([]byte(around + secret + around))
				for _, written := range []string{whole, url.QueryEscape(whole), strings.ReplaceAll(whole, "/", `\/`)} {
					got := Redact("<"+written+">", secret)
					before, after, ok := strings.Cut(got, redactedSecret)
					most := encoding.EncodedLen(len(around)) + 3 // the neighbour's, and what it shares
					after = strings.NewReplacer("%3D", "", "=", "").Replace(after)
					if !ok || len(before) > most || len(after) > most {
						t.Errorf("secret %q in %s: %s", secret, written, got)
					}
				}
			}
		}
	}
	for secret, text := range map[string]string{"abc": "YWJj 616263", "abcd": "YWJ YWJj 616263"} {
		if got := Redact(text, secret); got != text {
			t.Errorf("secret %q: %q became %q", secret, text, got)
		}
	}
}

// A short secret is part of many words, and is removed where it is one itself; neither it nor
// another secret shreds the marks of a third.
func TestShortSecretsAreWords(t *testing.T) {
	for _, test := range []struct {
		secrets    []string
		text, want string
	}{
		{[]string{"t"}, "connect: token t, 't' and t", "connect: token [secret], '[secret]' and [secret]"},
		{[]string{"t", "c", "secret", "cret"}, "connection to a secret", "connection to a [secret]"},
		{[]string{"t", "hunter2hunter2"}, "it is hunter2hunter2: t", "it is [secret]: [secret]"},
		{[]string{"1234567"}, "at 12345678 1234567 x1234567 _1234567", "at 12345678 [secret] x1234567 _1234567"},
		{[]string{"12345678"}, "at 123456789", "at [secret]9"},
		{[]string{"abc"}, `?key=abc&x=1 key%3Dabc%26 "\nabc" \u003dabc.`, `?key=[secret]&x=1 key%3D[secret]%26 "\n[secret]" \u003d[secret].`},
		{[]string{"é"}, "é éa caé (é)", "[secret] éa caé ([secret])"},
		{[]string{"a a"}, "xa a a", "xa [secret]"},
		{[]string{"abcdefgh", "efghijkl"}, "<abcdefghijkl>", "<[secret]>"},
		{[]string{"abcdefgh", "cdefghij", "abcdefghijklmnop"}, "abcdefghijklmnop abcdefgh", "[secret] [secret]"},
		{[]string{"[secret]x", "longlong"}, "longlongx [secret]x", "[secret]x [secret]"},
	} {
		check.Equal(t, Hider("", test.secrets...)(test.text), test.want, test.secrets)
		check.Equal(t, Hider(test.secrets[0], test.secrets...)(test.text), test.want, test.secrets)
	}
	check.Equal(t, Redact("bcd abcde", "bcd"), "[secret] abcde")
}

// A secret that is too long to look for takes the text with it.
func TestASecretTooLongToLookFor(t *testing.T) {
	for _, test := range []struct {
		bytes int
		want  string
	}{{MaxSought, "key [secret]"}, {MaxSought + 1, "(not shown, as it may contain the secret)"}} {
		secret := strings.Repeat("0123456789abcdefghijklmnopqrstuvwxyzABCDEFG", test.bytes)[:test.bytes]
		check.Equal(t, Redact("key "+secret, secret), test.want, test.bytes, "bytes")
	}
}

func TestNamesAreThoseOfHTML(t *testing.T) {
	for r, names := range htmlNames {
		for name := range strings.SplitSeq(names, "|") {
			got := html.UnescapeString("&" + name + ";")
			if r == ' ' {
				got = strings.ReplaceAll(got, "\u00a0", " ")
			}
			check.Equal(t, got, string(r), "&", name, "is, not", r)
		}
	}
}

// encoders write a character down as others do it.
var encoders = map[string]func(r rune) string{
	"itself":  func(r rune) string { return string(r) },
	"query":   func(r rune) string { return url.QueryEscape(string(r)) },
	"path":    func(r rune) string { return url.PathEscape(string(r)) },
	"percent": func(r rune) string { return "%" + strings.ReplaceAll(fmt.Sprintf("% x", string(r)), " ", "%") },
	"twice":   func(r rune) string { return url.QueryEscape(url.QueryEscape(string(r))) },
	"JSON": func(r rune) string {
		text, err := json.Marshal(string(r))
		if err != nil {
			panic(err) // no character fails
		}
		return string(text[1 : len(text)-1])
	},
	"ASCII": func(r rune) string {
		if r > 0xffff {
			return string(r)
		}
		return fmt.Sprintf(`\u%04x`, r)
	},
	"slash": func(r rune) string {
		if r == '/' {
			return `\/`
		}
		text := strconv.Quote(string(r))
		return text[1 : len(text)-1]
	},
	"HTML":    func(r rune) string { return html.EscapeString(string(r)) },
	"decimal": func(r rune) string { return fmt.Sprintf("&#%d;", r) },
	"hex":     func(r rune) string { return fmt.Sprintf("&#x%X;", r) },
}

// However each character of a secret is written, nothing of it is left.
func TestRedactLeavesNothing(t *testing.T) {
	var names []string
	for name := range encoders {
		names = append(names, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		// No Z: it stands around the secret, and no way of writing has it.
		alphabet := []rune(`abcxyzuABCDEFXYU0123456789 !"#$%&'()*+,-./:;<=>?@[\]^_{|}~` + "`\té日😀")
		secret := rapid.StringOfN(rapid.SampledFrom(alphabet), 1, 40, -1).Draw(t, "secret")
		uniform := rapid.SampledFrom(append([]string{""}, names...)).Draw(t, "all as")
		before, after := "ZZ", "ZZ"
		if utf8.RuneCountInString(secret) < Short { // only where it is a word
			before, after = "Z§", "§Z"
		}
		text := before
		for _, r := range secret {
			name := uniform
			if name == "" {
				name = rapid.SampledFrom(names).Draw(t, "as")
			}
			text += encoders[name](r)
		}
		text += after
		must.Equal(t, Redact(text, secret), before+"[secret]"+after, "secret", secret, "in", text)
	})
}

// No secret and no text makes the search panic or leaves the secret readable.
func FuzzRedact(f *testing.F) {
	f.Add("a/b+c", `{"error":"a\/b%2Bc"}`)
	f.Add("\xff%", "%ff%25")
	f.Add("k", "kkk")
	f.Fuzz(func(t *testing.T, secret, text string) {
		got := Redact(text, secret)
		if utf8.RuneCountInString(secret) < Short || strings.ContainsAny(secret, "[]") || strings.Contains("secret", secret) || !utf8.ValidString(secret) {
			return // a placeholder may hold, or complete, such a secret
		}
		if strings.Contains(got, secret) {
			t.Fatalf("secret %q is left of %q: %q", secret, text, got)
		}
	})
}
