// Package feedback holds, as data, the rules by which an upstream's responses are
// read: what refuses a call, what says how much is left, and which requests are
// which operation. Package config reads the rules from costs.toml into [Rules],
// package budgethttp applies them.
package feedback
