// Package feedback has, as data, the rules for reading an upstream's responses: what is
// a refusal, what says how much is left, and which requests are which operation.
// Package config reads the rules from costs.toml into [Rules], package budgethttp
// applies them.
package feedback
