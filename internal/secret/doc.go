// Package secret removes secrets from what is shown: from a text, however its characters
// are written ([Redact]), from a command's lines ([Hider]), and from a store's URL
// ([RedactURL]).
package secret
