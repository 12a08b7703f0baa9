// Package lua holds the scripts that run in Redis, one file each, every one
// opening with its KEYS, ARGV and answer. [With] joins a script with what it
// shares: the clock, its arguments by name, the ledger's layout, which layout.lua
// tells, its meters and windows, and the walk of a refusal.
package lua

import (
	"crypto/sha1" //nolint:gosec // the server names scripts by SHA-1
	"embed"
	"encoding/hex"
	"strings"
	"sync"
)

//go:embed *.lua
var files embed.FS

// Script is a script that is joined when it is first used: a program that charges once
// needs one of them.
type Script struct{ joined func() (text, sha string) }

// Text is what the server runs.
func (s Script) Text() string {
	text, _ := s.joined()
	return text
}

// SHA is the name by which the server knows the script.
func (s Script) SHA() string {
	_, sha := s.joined()
	return sha
}

// Scripts are all scripts.
type Scripts struct {
	Charge, Divide, Finish, Lock, Spent    Script // Divide is Charge for limits with shares
	Hold, Plan                             Script
	Usual, Convert                         Script
	Entries                                Script
	Import, Export, History, Refused       Script
	Accept, Forget, Probe, Doctor          Script
	JobRead, JobValue, JobHistory, JobSwap Script
}

// MaxNumbers is how many packed numbers usual.lua takes at once, and how many it writes; Lua's
// stack holds about twice as many.
const MaxNumbers = 3500

// Clock is the snippet through which all scripts read the time.
func Clock() string { return file("clock") }

// With joins the scripts with a clock snippet: [Clock], but in tests.
func With(clock string) Scripts {
	join := func(names string, before ...string) Script {
		return Script{sync.OnceValues(func() (text, sha string) {
			parts := append([]string{clock}, before...)
			for _, name := range strings.Fields(names) {
				parts = append(parts, file(name))
			}
			text = strings.Join(parts, "\n")
			sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
			return text, hex.EncodeToString(sum[:])
		})}
	}
	doubles := "local doubles = '" + strings.Repeat("d", MaxNumbers) + "'"
	const ledger = "args layout meters history locks holds totals ledger blocks "
	return Scripts{
		Charge: join(ledger + "windows walk replay merge recover drift look weigh charge"),
		Divide: join(ledger + "windows walk shares replay merge recover drift look weigh charge"),
		Import: join(ledger + "windows walk shares replay merge recover drift look weigh import charge"), Export: join("args layout state export"),
		Finish: join(ledger + "finish"), Lock: join(ledger + "lock"), Hold: join(ledger + "hold"), Plan: join(ledger + "plan"), Spent: join(ledger + "spent"), Entries: join(ledger + "entries"), History: join(ledger + "history_read"), Refused: join(ledger + "refused"),
		Usual: join("usual", doubles), Convert: join(ledger + "convert"),
		Accept: join("layout state accept"), Forget: join("layout state forget"), Probe: join("probe"), Doctor: join("doctor"),
		JobRead: join("job_read"), JobValue: join("job_value"), JobHistory: join("args job_history"), JobSwap: join("args job_swap"),
	}
}

func file(name string) string {
	text, err := files.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // a missing script fails every test
	}
	return string(text)
}
