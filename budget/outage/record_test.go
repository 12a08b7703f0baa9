package outage

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/quotactl/quotactl/budget/driver"
	"github.com/quotactl/quotactl/budget/limit"
	"github.com/quotactl/quotactl/internal/must"
)

// What parses is a record that this program could have written: it is written
// and read again as the same, and asks nothing that a store has to refuse as
// wrong in itself.
func FuzzRecord(f *testing.F) {
	for _, seed := range []string{
		`{"v":1,"budget":"up/key1","id":"a","boot":"b","at":7,"charge":{"operation":"list","units":1,"lease":60000000,"job":"j","region":"US","run":"r/1"}}`,
		`{"v":1,"budget":"up/key1","id":"../../x","boot":"","at":0,"finish":{"release":true,"units":0}}`,
		`{"v":1,"budget":"up/key1","id":"a","at":-1,"charge":{"operation":"list","units":1e15}}`,
		`{"v":2}`, `{"v":1,"budget":"..","id":"a","finish":{}}`, `{"v":1} {"v":1}`, `null`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseRecord(data)
		if err != nil {
			return
		}
		if r.ID == "" || !driver.ValidBudget(r.Budget) || strings.ContainsAny(r.name(), "/\\") || strings.Contains(fileName(r.Budget), "/") {
			t.Fatalf("%+v is taken", r)
		}
		if age := r.age(r.Boot, 5); age < 0 || age > 5 {
			t.Fatalf("an age of %d", age)
		}
		written := must.Get(json.Marshal(r))(t)
		again, err := parseRecord(written)
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%+v is written as %s and read as %+v, %v", r, written, again, err)
		}
		if r.Charge != nil {
			if item := r.item(3); !item.Recorded || item.Units < 0 || item.Units > limit.MaxUnits || item.Lease < 0 {
				t.Fatalf("%+v", item)
			}
		}
	})
}
