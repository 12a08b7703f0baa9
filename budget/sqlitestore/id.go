package sqlitestore

import (
	"encoding/base32"
	"hash/fnv"
	"strings"
)

// Package budget makes ids with rand.Text: 26 characters of the standard base32 alphabet,
// 130 bits. The file keeps those as idBytes bytes, and others as they are.
const (
	idChars = 26
	idBytes = 17
	idWhole = 24 // characters that fill whole bytes; the last two are 10 bits
)

const idAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"

// stored is the file's form of an id: a string or []byte.
func stored(id string) any {
	if len(id) != idChars {
		return id
	}
	packed := make([]byte, idBytes)
	if n, err := base32.StdEncoding.Decode(packed, []byte(id[:idWhole])); err != nil || n != idBytes-2 { // fewer with padding
		return id
	}
	high, low := strings.IndexByte(idAlphabet, id[idWhole]), strings.IndexByte(idAlphabet, id[idWhole+1])
	if high < 0 || low < 0 {
		return id
	}
	last := high<<5 | low
	packed[idBytes-2], packed[idBytes-1] = byte(last>>8), byte(last) //nolint:gosec // 10 bits
	return packed
}

// storedID reads an id from its stored form.
type storedID string

func (id *storedID) read(packed bool, value []byte) {
	if !packed || len(value) != idBytes {
		*id = storedID(value)
		return
	}
	text := make([]byte, idChars)
	base32.StdEncoding.Encode(text, value[:idBytes-2])
	last := int(value[idBytes-2])<<8 | int(value[idBytes-1])
	text[idWhole], text[idWhole+1] = idAlphabet[last>>5&31], idAlphabet[last&31]
	*id = storedID(text)
}

// hashOf is the hash by which the file finds an id: 32 bits, so that it takes few bytes.
func hashOf(id string) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))     // it never fails
	return int64(int32(h.Sum32())) //nolint:gosec // all 32 bits, as the least number
}
