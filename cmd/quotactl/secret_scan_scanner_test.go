package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/redis/go-redis/v9"

	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/effort"
	"github.com/quotactl/quotactl/internal/must"
)

// traceBytes is how much of a secret, in bytes, is a leak: a part is one too.
const traceBytes = 12

// secrets are random texts that must be found nowhere, by what they are for.
type secrets struct {
	t      testing.TB
	random *rand.Rand
	byName map[string]string
	traces map[string]string // each part of each secret in each form, and what it is
}

// newSecrets makes the secrets of a run.
func newSecrets(t testing.TB) *secrets {
	t.Helper()
	seed := effort.Seed(t)
	return &secrets{t: t, random: rand.New(rand.NewPCG(seed, 0)), byName: map[string]string{}, traces: map[string]string{}}
}

// add makes a secret of some 200 bits. Its end is changed by URLs and HTML.
func (s *secrets) add(name string) string {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	secret := make([]byte, 33)
	for i := range secret {
		secret[i] = letters[s.random.IntN(len(letters))]
	}
	secret[0] = 'k' // a name begins so: it is shown where a name would be
	s.addText(name, string(secret)+"/+&<")
	return s.byName[name]
}

func (s *secrets) addText(name, secret string) {
	s.byName[name] = secret
	for form, texts := range map[string][]string{
		"plain":   {secret},
		"lowered": {strings.ToLower(secret)}, // as in a URL's scheme or host
		"hex":     {hex.EncodeToString([]byte(secret))},
		"HEX":     {strings.ToUpper(hex.EncodeToString([]byte(secret)))},
		"base64":  base64Parts(secret),
		"UTF-16":  {wide(secret)},
		"spelled": {strings.Join(strings.Split(secret, ""), " ")},
	} {
		length := map[string]int{"hex": 2, "HEX": 2, "UTF-16": 2, "spelled": 2}[form]
		length = max(1, length) * traceBytes
		for _, text := range texts {
			for i := 0; i+length <= len(text); i++ {
				s.traces[text[i:i+length]] = name + ", " + form
			}
		}
	}
}

// base64Parts are the characters that only the secret determines, wherever it stands in the
// encoded text, in both alphabets.
func base64Parts(secret string) []string {
	var parts []string
	for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			text := encoding.EncodeToString([]byte(strings.Repeat("x", before) + secret))
			parts = append(parts, text[(before*8+5)/6:len(text)-1])
		}
	}
	return parts
}

func wide(text string) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		b = append(b, byte(unit), byte(unit>>8))
	}
	return string(b)
}

// find tells what of the secrets is in a text, and where.
func (s *secrets) find(text []byte) []string {
	var found []string
	told := map[string]bool{}
	look := func(text []byte, decoded string) {
		for _, length := range []int{traceBytes, 2 * traceBytes} {
			for i := 0; i+length <= len(text); i++ {
				what, is := s.traces[string(text[i:i+length])]
				if is && !told[what] {
					told[what] = true
					found = append(found, fmt.Sprintf("%s%s, at byte %d: …%.200q…", what, decoded, i, text[max(0, i-80):min(len(text), i+length+80)]))
				}
			}
		}
	}
	look(text, "")
	if bytes.IndexByte(text, '%') >= 0 {
		look(percentDecoded(text), " (percent-encoded)")
	}
	if bytes.Contains(text, []byte(`\u`)) || bytes.Contains(text, []byte(`\x`)) {
		look(backslashDecoded(text), " (escaped)")
	}
	return found
}

var (
	percentCoded   = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	backslashCoded = regexp.MustCompile(`\\(u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2})`)
)

// percentDecoded decodes what can be decoded and leaves the rest.
func percentDecoded(text []byte) []byte {
	return percentCoded.ReplaceAllFunc(text, func(code []byte) []byte {
		b, _ := hex.DecodeString(string(code[1:])) // as the pattern has it
		return b
	})
}

// backslashDecoded decodes \u0041 and \x41 and leaves the rest.
func backslashDecoded(text []byte) []byte {
	return backslashCoded.ReplaceAllFunc(text, func(code []byte) []byte {
		n, _ := strconv.ParseUint(string(code[2:]), 16, 32) // as the pattern has it
		return []byte(string(rune(n)))
	})
}

// absent fails when a text of a place holds a trace of a secret.
func (s *secrets) absent(place string, text []byte) {
	s.t.Helper()
	for _, found := range s.find(text) {
		s.t.Errorf("%s leaks %s", place, found)
	}
}

// absentBelow scans the names and the bytes of all files below a folder but the
// excepted, which are relative to it; a pattern may name a folder. It returns
// how many were scanned.
func (s *secrets) absentBelow(folder string, except ...string) int {
	s.t.Helper()
	scanned := 0
	for place, text := range s.filesBelow(folder, except...) {
		scanned++
		s.absent(place, text)
	}
	return scanned
}

func (s *secrets) filesBelow(folder string, except ...string) map[string][]byte {
	s.t.Helper()
	files := map[string][]byte{}
	must.Do(s.t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(except, func(pattern string) bool { is, _ := filepath.Match(pattern, name); return is }) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		s.absent("the name of a file in "+folder, []byte(name))
		if entry.Type().IsRegular() {
			files[path], err = os.ReadFile(path)
		}
		return err
	}))
	return files
}

// absentInRedis scans every key, its value and its serialised form, and what
// the server noted of the commands it was sent. It returns how many keys.
func (s *secrets) absentInRedis(client *redis.Client) int {
	s.t.Helper()
	places := s.redisPlaces(client)
	for place, text := range places {
		s.absent(place, text)
	}
	keys := must.Get(client.DBSize(s.t.Context()).Result())(s.t)
	return int(keys)
}

func (s *secrets) redisPlaces(client *redis.Client) map[string][]byte {
	s.t.Helper()
	ctx := s.t.Context()
	places := map[string][]byte{}
	scan := client.Scan(ctx, 0, "", 100).Iterator()
	for scan.Next(ctx) {
		key := scan.Val()
		kind := must.Get(client.Type(ctx, key).Result())(s.t)
		read := map[string][]any{
			"string": {"GET", key},
			"hash":   {"HGETALL", key},
			"list":   {"LRANGE", key, 0, -1},
			"set":    {"SMEMBERS", key},
			"zset":   {"ZRANGE", key, 0, -1, "WITHSCORES"},
			"stream": {"XRANGE", key, "-", "+"},
		}[kind]
		if read == nil {
			s.t.Fatalf("redis: key %q is a %s, which is not scanned", key, kind)
		}
		value, err := client.Do(ctx, read...).Result()
		if err != nil {
			s.t.Fatalf("redis: %v: %v", read, err)
		}
		dump := must.Get(client.Dump(ctx, key).Result())(s.t)
		places["redis, the name of a key"] = append(places["redis, the name of a key"], key+"\n"...)
		places["redis, the value of "+key] = fmt.Append(nil, value)
		places["redis, the dump of "+key] = []byte(dump)
	}
	must.Do(s.t, scan.Err())
	noted := must.Get(client.Do(ctx, "SLOWLOG", "GET", -1).Result())(s.t)
	places["redis, the commands"] = fmt.Append(nil, noted)
	return places
}

// The scan is worth what its scanner finds: here it finds a secret, or a part
// of one, in each kind of place and in each form.
func TestTheSecretScannerFindsWhatIsPlanted(t *testing.T) {
	s := newSecrets(t)
	secret := s.add("planted")
	text := must.Get(json.Marshal(map[string]string{"error": "the key " + secret + " is wrong"}))(t)
	whole := []byte("user:" + secret + "@host")
	forms := map[string]string{
		"plain":            secret,
		"a first part":     secret[:traceBytes] + "…",
		"a last part":      "…" + secret[len(secret)-traceBytes:],
		"query":            url.QueryEscape(secret),
		"path":             url.PathEscape(secret),
		"percent":          "%" + strings.Join(slices.Collect(byTwo(hex.EncodeToString([]byte(secret)))), "%"),
		"hex":              hex.EncodeToString(whole),
		"HEX":              fmt.Sprintf("%X", whole),
		"base64":           base64.StdEncoding.EncodeToString(whole),
		"base64, shifted":  base64.StdEncoding.EncodeToString(whole[1:]),
		"base64, shifted2": base64.StdEncoding.EncodeToString(whole[2:]),
		"base64 of a URL":  base64.RawURLEncoding.EncodeToString(whole),
		"JSON":             string(text),
		"JSON, escaped":    `\u00` + strings.Join(slices.Collect(byTwo(hex.EncodeToString([]byte(secret)))), `\u00`),
		"UTF-16":           wide(secret),
		"UTF-16, filtered": strings.ReplaceAll(wide(secret), "\x00", " "),
	}
	server := startRedis(t)
	client := server.client()
	dir := t.TempDir()
	for form, planted := range forms {
		t.Run(form, func(t *testing.T) {
			inner := *s
			inner.t = t
			around := "level=INFO msg=\"" + planted + "\"\n"
			if len(s.find([]byte(around))) == 0 {
				t.Errorf("not found in a text: %q", around)
			}
			name := filepath.Join(dir, "log")
			must.Do(t, os.WriteFile(name, []byte(around), 0o600))
			if found := s.find(inner.filesBelow(dir)[name]); len(found) == 0 {
				t.Error("not found in a file")
			}
			check.Equal(t, len(inner.filesBelow(dir, "log")), 0, "an exception is none")
			for kind, plant := range map[string][]any{
				"string": {"SET", "k", planted}, "hash": {"HSET", "k", "field", planted}, "field": {"HSET", "k", planted, "value"},
				"list": {"RPUSH", "k", planted}, "set": {"SADD", "k", planted}, "zset": {"ZADD", "k", 1, planted},
				"stream": {"XADD", "k", "*", "f", planted}, "key": {"SET", planted, "v"},
			} {
				for _, command := range [][]any{{"FLUSHALL"}, plant, {"SLOWLOG", "RESET"}} {
					must.Do(t, client.Do(t.Context(), command...).Err())
				}
				if !anyFound(s, inner.redisPlaces(client)) {
					t.Errorf("not found in redis, %s", kind)
				}
			}
			for _, command := range [][]any{{"FLUSHALL"}, {"SLOWLOG", "RESET"}, {"ECHO", planted[:min(len(planted), 100)]}} {
				must.Do(t, client.Do(t.Context(), command...).Err())
			}
			if !anyFound(s, inner.redisPlaces(client)) {
				t.Error("not found in the commands that the server was sent")
			}
		})
	}
	for _, innocent := range []string{"", "level=INFO msg=output", "%zz%", `\u`, strings.Repeat("x", 1000), secret[:traceBytes-1]} {
		if found := s.find([]byte(innocent)); len(found) > 0 {
			t.Errorf("found in %q: %s", innocent, found)
		}
	}
}

func anyFound(s *secrets, places map[string][]byte) bool {
	for _, text := range places {
		if len(s.find(text)) > 0 {
			return true
		}
	}
	return false
}

func byTwo(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for ; len(text) >= 2; text = text[2:] {
			if !yield(text[:2]) {
				return
			}
		}
	}
}
