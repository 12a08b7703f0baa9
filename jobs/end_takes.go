package jobs

// EndTakes is how long a pass that was told to end may take beside its grace: for the
// last lines of a command that was killed, how far the run has come, whether the claim
// stands and what was spent, the slots that are given up, and the record.
const EndTakes = pipeWait + lastWords + 2*spentWait + 3*lastWords + lastWords
