// Package checkpoint is the form in which a region's checkpoint is kept beside its
// job's document, for those who write one: package jobs for fetch jobs, and package
// client for programs.
package checkpoint

import (
	"encoding/json"
	"fmt"
	"time"
)

// Max is the most that a program may keep in a checkpoint, in bytes.
const Max = 64 << 10

// Key is the key, beside a job's document, of a region's checkpoint.
func Key(region string) string { return "checkpoint/" + region }

// Value is a checkpoint as it stands in the store, in JSON. Of Data, a
// program's, and Fetch, which is package jobs' own, it has one.
type Value struct {
	Expires int64           `json:"expires"` // µs, by the clock of who wrote it
	Data    []byte          `json:"data,omitempty"`
	Fetch   json.RawMessage `json:"fetch,omitempty"`
}

// Read reads a value; members that it does not know are left aside.
func Read(text []byte) (value Value, err error) {
	if err := json.Unmarshal(text, &value); err != nil {
		return Value{}, fmt.Errorf("it cannot be read: %w; was it written by another version?", err)
	}
	return value, nil
}

// Expired reports whether it is too old to go on from.
func (v Value) Expired(now time.Time) bool { return v.Expires <= now.UnixMicro() }

// Text is the value as it is kept.
func (v Value) Text() []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the only member that might fail is JSON already
	}
	return text
}

// ActiveFences reads the numbers of the passes under way from a job's document, of
// which package jobs writes the rest; none where there is no document.
func ActiveFences(document []byte) ([]int64, error) {
	if document == nil {
		return nil, nil
	}
	var claims struct {
		Active []struct {
			Fence int64 `json:"fence"`
		} `json:"active"`
	}
	if err := json.Unmarshal(document, &claims); err != nil {
		return nil, fmt.Errorf("read the state of the job: %w; was it written by another version?", err)
	}
	var list []int64
	for _, claim := range claims.Active {
		list = append(list, claim.Fence)
	}
	return list, nil
}
