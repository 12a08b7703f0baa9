// Package secret takes secrets out of what is shown: out of a text, however its
// characters are written ([Redact]), out of a command's lines ([Hider]), and out of
// a store's URL ([RedactURL]).
package secret
