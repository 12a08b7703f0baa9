// Package checkpoint defines how a region's checkpoint is stored beside its job's
// document. Package jobs writes it for fetch jobs, and package client for programs.
package checkpoint

import (
	"encoding/json"
	"fmt"
	"time"
)

// Max is the most that a program may store in a checkpoint, in bytes.
const Max = 64 << 10

// Key is the key, beside a job's document, of a region's checkpoint.
func Key(region string) string { return "checkpoint/" + region }

// Value is a checkpoint as the store has it, in JSON. It has either Data, a program's, or
// Fetch, which only package jobs reads.
type Value struct {
	Expires int64           `json:"expires"` // µs, by the writer's clock
	Data    []byte          `json:"data,omitempty"`
	Fetch   json.RawMessage `json:"fetch,omitempty"`
}

// Read parses a value and ignores unknown members.
func Read(text []byte) (value Value, err error) {
	if err := json.Unmarshal(text, &value); err != nil {
		return Value{}, fmt.Errorf("%w; was it written by another version?", err)
	}
	return value, nil
}

// Expired reports whether it is too old to resume from.
func (v Value) Expired(now time.Time) bool { return v.Expires <= now.UnixMicro() }

// Text is the value as it is stored.
func (v Value) Text() []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // the only member that might fail is JSON already
	}
	return text
}
