// Package draft makes a first configuration of the calls that a program was seen to make: it
// folds their paths into patterns ([Fold]), notes what they carry and what their answers say
// ([Log]), and writes a costs.toml of that ([Log.Config]). Nothing in it holds a secret.
package draft
