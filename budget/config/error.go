package config

import "strconv"

// Error is one error in a configuration file.
type Error struct {
	File    string
	Line    int // 1 or more; 0 for the file as a whole
	Message string
}

// Error formats the error as file:line: message.
func (e Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Message
	}
	return e.File + ":" + strconv.Itoa(e.Line) + ": " + e.Message
}

// Errors are all errors of a configuration, in the order of their lines.
type Errors []Error

// Error is one error per line.
func (e Errors) Error() string {
	s := ""
	for i, one := range e {
		if i > 0 {
			s += "\n"
		}
		s += one.Error()
	}
	return s
}
