-- The state of a ledger, for scripts that need no more of it. Comes after layout.lua, which
-- describes it.

-- stateAt is one of the first numbers of a state.
local function stateAt(state, i) return (struct.unpack('d', state, HEAD + 8 * i - 7)) end

-- emptyState is the state of a ledger without entries.
local function emptyState(last, newest, seq)
  return string.rep('-', HEAD) .. struct.pack('dddddddddd', last, newest, 0, 0, seq, 0, 0, 0, 0, 0)
end
