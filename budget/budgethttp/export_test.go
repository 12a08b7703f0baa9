package budgethttp

import "io"

// Two more codings, whose decoders panic: one when it is made, and one when it has
// read something.
func init() {
	decoders["panics"] = func(io.Reader) (io.Reader, error) { panic("made") }
	decoders["panics-later"] = func(r io.Reader) (io.Reader, error) {
		return reading(func(p []byte) (int, error) {
			if _, err := r.Read(p); err != nil {
				return 0, err
			}
			panic("read")
		}), nil
	}
}
