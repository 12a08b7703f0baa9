// Package outage is the host's side of a store that is out of reach. [New] wraps
// a driver.Store in one that
//
//   - asks a store that does not answer at most once an interval, across all
//     processes of the host (the breaker);
//   - decides calls whose policy is open from the host's allowance, in windows as
//     exact as the store's, and writes each charge down before it grants it;
//   - records in the store what it wrote down, once, with its id and its age, before
//     the store's next decision for this host;
//   - remembers the store's last answers, notices when the store has lost charges,
//     and has it record what is missing (known.go, losses.go);
//   - spends only its part while other hosts have yet to report on a loss (part.go).
//
// A host is one directory. The processes of a machine that share it spend one
// allowance. It holds
//
//	breaker          exists while the store is out of reach; probe.N beside it
//	breakers/BUDGET/ the same, when each budget has a server that may fail alone
//	allowance.db     what the host spent meanwhile, a ledger like the store's
//	journal/BUDGET/  records yet to be made in the store, one file each
//	aside/BUDGET/    records that the store refused, for a person to check
//	memory/BUDGET    the store's last answers on a budget
//	own/BUDGET       what the host itself charged to a budget
//	host             the directory's id, by which a ledger knows the host
package outage
