package budget

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// maxConfigFile is the most bytes that a configuration may have.
const maxConfigFile = 16 << 20

// ReadConfigFile reads the text of a configuration: a regular file, or a link to one,
// of at most 16 MiB. It does not wait for a named pipe's writer, and reads no device.
// A pipe that the caller has opened is read under its name, /dev/stdin or /dev/fd/N.
func ReadConfigFile(path string) ([]byte, error) {
	const advice = "name a regular file with --config or QUOTACTL_CONFIG"
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // else a named pipe waits for its writer
	if errors.Is(err, syscall.ENXIO) {                                // a socket, or a device that is not there
		return nil, fmt.Errorf("read the configuration: %s is no regular file; %s", path, advice)
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w; write one, or name it with --config or QUOTACTL_CONFIG", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	if !info.Mode().IsRegular() && !isOpenPipe(path, info.Mode()) {
		return nil, fmt.Errorf("read the configuration: %s is %s, not a regular file; %s", path, fileKind(info.Mode()), advice)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxConfigFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the configuration: %w", err)
	case len(text) > maxConfigFile:
		return nil, fmt.Errorf("read the configuration: %s has more than %d MiB, too much for a configuration; %s", path, maxConfigFile>>20, advice)
	}
	return text, nil
}

// isOpenPipe tells a pipe that the caller has opened from one that waits for a writer.
func isOpenPipe(path string, mode fs.FileMode) bool {
	return mode&fs.ModeNamedPipe != 0 && (path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/"))
}

// fileKind says what a file is that is not regular.
func fileKind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}
