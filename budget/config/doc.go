// Package config reads costs.toml. [Parse] reports every fault of a file with its line
// and what to write instead; [Load] is for programs that need a file without faults.
// [Config.Spec] makes the budget.Spec of one budget. The job tables are read by package
// jobs, through [Node].
package config
