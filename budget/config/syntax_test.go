package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/config"
	"github.com/quotactl/quotactl/internal/check"
	"github.com/quotactl/quotactl/internal/must"
)

const syntaxConfig = `[upstream.shop.costs]
"get" = 1
[upstream.shop.limit.daily]
quota  = 100
window = "24h"
[upstream.shop.credential.main]
`

// For common mistakes in TOML, the error says what to write.
func TestConfigSaysWhatToWrite(t *testing.T) {
	for _, test := range []struct {
		line, instead string
		at            string // the line of the fault
		want          string // what the message ends with
	}{
		{"quota  = 100", "quota = 10k", ":4: ", "write the number out: 10_000"},
		{"quota  = 100", "quota = 1.5M # a day", ":4: ", "write the number out: 1_500_000"},
		{"quota  = 100", "quota = 10,000", ":4: ", "write the number out: 10_000"},
		{"quota  = 100", "quota = 10'000", ":4: ", "write the number out: 10_000"},
		{"quota  = 100", "quota = 1 000 000", ":4: ", "write the number out: 1_000_000"},
		{"quota  = 100", `quota = "10k"`, ":4: ", `quota = "10k" is a string: write 10_000, a number from 1 to 1000000000000000, without quotes`},
		{"quota  = 100", `quota = "10,000"`, ":4: ", "write 10_000, a number from 1 to 1000000000000000, without quotes"},
		{"quota  = 100", `quota = "10_000"`, ":4: ", "write 10_000, a number from 1 to 1000000000000000, without quotes"},
		{"quota  = 100", `quota = "10000"`, ":4: ", "write 10000, a number from 1 to 1000000000000000, without quotes"},
		{"quota  = 100", "quota = 1e4", ":4: ", "quota has a fraction or an exponent: write 10000, a whole number from 1 to 1000000000000000"},
		{"quota  = 100", "quota = 10000.0", ":4: ", "write 10000, a whole number from 1 to 1000000000000000"},
		{"quota  = 100", "quota = 1.5", ":4: ", "quota is a number with a fraction: write a whole number from 1 to 1000000000000000"},
		{"quota  = 100", "quota = 100\nheadroom = 5%", ":5: ", `write the percentage in quotes: "5%"`},
		{"quota  = 100", "quota = 100\nheadroom = 2.5 % # kept back", ":5: ", `write the percentage in quotes: "2.5%"`},
		{"quota  = 100", `quota = "many"`, ":4: ", "quota is a string: write a whole number from 1 to 1000000000000000"},
		{`"get" = 1`, `"get" = { units = 10k }`, ":2: ", "write the number out: 10_000"},
		{`"get" = 1`, `"get = 1`, ":2: ", `a quote is missing in this line: a string, and a key with dots, begins and ends with one, "…"`},
		{`"get" = 1`, `get" = 1`, ":2: ", "begins and ends with one, \"…\""},
		{`"get" = 1`, `'get = 1`, ":2: ", "begins and ends with one, \"…\""},
		{`window = "24h"`, `window = "24h`, ":5: ", "begins and ends with one, \"…\""},
		{`window = "24h"`, `window = 24h"`, ":5: ", "begins and ends with one, \"…\""},
		{`window = "24h"`, `window = "24h" # the day's "`, "", ""},
		{`window = "24h"`, `window = 24h`, ":5: ", `write the span in quotes: "24h"`},
		{`window = "24h"`, `window = 1d12h`, ":5: ", `write the span in quotes: "1d12h"`},
		{`window = "24h"`, `window = “24h”`, ":5: ", `write a string, and a key with dots, in plain quotes, "…"`},
		{`"get" = 1`, `“get” = 1`, ":2: ", `write a string, and a key with dots, in plain quotes, "…"`},
		{`"get" = 1`, `get = 1x # “one”`, ":2: ", `but got 'x' instead`},
		{`window = "24h"`, `window = "12h1d"`, ":5: ", `window = "12h1d" is not a span of time: days come first: write 1d12h`},
		{`window = "24h"`, `window = "1h1d30m"`, ":5: ", `days come first: write 1d1h30m`},
		{`window = "24h"`, `window = "1x1d"`, ":5: ", `such as "7d", "24h", "8m" or "30s"`},
		{"quota  = 100\nwindow = \"24h\"", `refill = "40k/d"`, ":4: ", `refill = "40k/d" is not a rate: write the number out: "40_000/d"`},
		{"quota  = 100\nwindow = \"24h\"", `refill = "forty/d"`, ":4: ", `such as "50/s", "1000/h" or "7/30s"`},
		{"quota  = 100\nwindow = \"24h\"", "limit = 40_000\nrefill = \"40_000/d\"", "", ""},
		{`window = "24h"`, `calendar = day`, ":5: ", `write the string in quotes, "…"`},
		{".main]", ".main]\nsecret_env = API_KEY", ":7: ", `write the string in quotes, "…"`},
		{".main]", ".main]\nsecret_env = 123 456", ":7: ", `write the string in quotes, "…"`},
		{`"get" = 1`, `search.list = 1`, ":2: ", `search.list without quotes is not one name, but a key of a table "search": write "search.list" = …`},
		{`"get" = 1`, "\"get\" = 1\nsearch.list = { units = 100 }", ":3: ", `write "search.list" = …`},
		{`"get" = 1`, "search . list = 1", ":2: ", `write "search.list" = …`},
		{`"get" = 1`, "a.b.c = 1", ":2: ", `write "a.b.c" = …`},
		{`"get" = 1`, "search.list.units = 1", ":2: ", `write "search.list" = …`},
		{`"get" = 1`, "get.units = 1", "", ""},
		{`"get" = 1`, `"search.list" = 1`, "", ""},
		{`"get" = 1`, `"get" = { unit = 1 }`, ":2: ", `did you mean "units"?`},
	} {
		path := filepath.Join(t.TempDir(), "costs.toml")
		must.Do(t, os.WriteFile(path, []byte(strings.Replace(syntaxConfig, test.line, test.instead, 1)), 0o600))
		_, err := config.Load(path)
		if test.want == "" {
			check.NoError(t, err, test.instead)
			continue
		}
		if err == nil || !strings.HasSuffix(err.Error(), test.want) || !strings.Contains(err.Error(), test.at) {
			t.Errorf("%s: %v; want …%s…%s", test.instead, err, test.at, test.want)
		}
		if err != nil && strings.Contains(strings.ReplaceAll(err.Error(), path, ""), "456") { // the folder's name has a random number
			t.Errorf("%s: what may be a secret is shown: %v", test.instead, err)
		}
	}
}
