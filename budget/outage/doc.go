// Package outage is the host's side of a store that is out of reach. [New] wraps
// a driver.Store in one that
//
//   - asks a store that does not answer no more than once an interval, over all
//     processes of the host (the breaker);
//   - decides calls whose policy is open from the host's allowance, in windows as
//     exact as the store's, and writes each down before it is granted;
//   - records what was written down, once, with its id and its age, before the
//     host's next decision by the store;
//   - remembers what the store last said, notices when it has lost that, and has
//     what is missing recorded (known.go);
//   - spends its part while other hosts have still to report on a loss (part.go).
//
// A host is one directory; the processes of a machine that share it spend one
// allowance. In it lie
//
//	breaker          there while the store is out of reach; probe.N beside it
//	breakers/BUDGET/ the same, where each budget's server may go away on its own
//	allowance.db     what the host spent meanwhile, a ledger like the store's
//	journal/BUDGET/  charges still to be recorded, one file each
//	aside/BUDGET/    what the store refused to record, for a person to check
//	memory/BUDGET    what the store last said of a budget
//	host             the directory's id, by which a ledger knows the host
package outage
