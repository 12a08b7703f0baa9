package budgethttp

import "io"

// AddPanicking adds two codings whose decoders panic, "panics" when it is made and
// "panics-later" when it has read something, until remove is called. Nothing may read
// a body meanwhile.
func AddPanicking() (remove func()) {
	decoders["panics"] = func(io.Reader) (io.Reader, error) { panic("made") }
	decoders["panics-later"] = func(r io.Reader) (io.Reader, error) {
		return reading(func(p []byte) (int, error) {
			if _, err := r.Read(p); err != nil {
				return 0, err
			}
			panic("read")
		}), nil
	}
	return func() {
		delete(decoders, "panics")
		delete(decoders, "panics-later")
	}
}
