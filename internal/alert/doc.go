// Package alert tells people what happens to budgets and jobs: by webhook, by mail, and with a
// ping for each pass of a job.
//
// Every daemon looks at the budgets and jobs each [LookEvery]. What it sees are facts, such as
// that a limit is used up. A fact begins or ends a situation; each situation begins once and
// ends once a period. Situations, and the messages about them, are in a document of the jobs'
// store, one for each alert. Daemons change it by compare and swap, so that of several daemons
// that see the same only one writes it down. A look that sees nothing new only reads, so that
// no daemon needs to lead, and none is missed when it dies.
//
// A daemon claims a message before it sends it, and removes it afterwards. A claim ends soon
// unless its daemon finishes, and then another daemon sends the message, under the same id.
package alert
