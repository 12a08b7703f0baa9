package gateway

import (
	"bytes"
	"crypto/sha1"
	"crypto/x509"
	"encoding/binary"
	"strconv"
	"time"
	"unicode/utf16"
)

// storePassword guards nothing: the format has a checksum that begins with it.
const storePassword = "quotactl"

// keystore writes roots as a Java key store (JKS).
func keystore(roots []*x509.Certificate, now time.Time) []byte {
	var store bytes.Buffer
	put := func(values ...any) {
		for _, value := range values {
			if text, ok := value.(string); ok {
				value = append(binary.BigEndian.AppendUint16(nil, uint16(len(text))), text...)
			}
			_ = binary.Write(&store, binary.BigEndian, value) // a buffer takes all
		}
	}
	const magic, version, trusted = uint32(0xFEEDFEED), uint32(2), uint32(2)
	put(magic, version, uint32(len(roots)))
	for i, root := range roots {
		put(trusted, "root"+strconv.Itoa(i), now.UnixMilli(), "X.509", uint32(len(root.Raw)), root.Raw)
	}
	sum := sha1.New()
	_ = binary.Write(sum, binary.BigEndian, utf16.Encode([]rune(storePassword))) // a hash takes all
	sum.Write([]byte("Mighty Aphrodite"))
	sum.Write(store.Bytes())
	return sum.Sum(store.Bytes())
}
