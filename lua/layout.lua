-- The layout that the scripts on a ledger share.
--
-- Keys of a budget, all under one hash tag {B}:
--   m        hash, in texts and whole numbers: v format, born (first decision), ops (names
--            in the order of their numbers), sig (their SHA-1, since two lists of one length
--            may differ), wins (live windows: key, longest, last use, floor), covers (key and
--            last use of each cover), chg (settlements, releases and
--            new periods, after which a walk begins anew), exp (instant of the
--            written expiry, ms), prune (when to look for entries to remove), gone
--            (entries that finished up to here are forgotten), meters (live
--            buckets), merged (entries with scores up to here may be merged),
--            rowno (the newest merged row's number), mpos (how far a merge under
--            way has got), locks (a line each: limit or * for the budget, until,
--            since, why), marks (1: some entries have a mark), lid (the ledger's
--            random id), loss (when the last loss was
--            noticed, and the hosts that have reported, separated by blanks), hosts
--            (each that decided lately and when it was noted, likewise), reset
--            (when a reset began the ledger), split (patterns of the jobs whose charges are counted
--            apart, for shares), spos (how far their entries have moved), tables (each
--            host, the digest of its shares, and when it was first and last noted,
--            separated by blanks), holds (see holds.lua), plans (the records of what shares still need: writer,
--            share, jobs, guarantee and end each, likewise), pause (no merging begins before this time: an export is reading),
--            unnoted (the history may lack charges of up to here;
--            without it, of up to the newest)
--            and the running totals, packed, all numbers as doubles:
--            s        the state: a head of HEAD bytes, see headOf in totals.lua; last (last
--                     seen µs), newest (newest entry's time), n (entries), slow (from when on
--                     the usual script leaves a charge to charge.lua), seq (charges,
--                     settlements, locks and the like so far), how many operations, windows
--                     and covers, tidy (when there is something to tidy), how many buckets;
--                     for each window units, calls, due (earliest next expiry; 0:
--                     it is being counted), adv (what it has left behind), what has come back
--                     (units, calls) and period; for each cover units, calls and its window's
--                     place, 0: it is free; for each bucket its level: used, part, at; and the
--                     newest entry's id
--            o<op>    the totals of one operation: entries in z and in y; the covers that
--                     count it (bits); entries of z beyond the last block, and that block's
--                     end; for each window units, calls, cut, due, units and calls
--                     that have come back; while one is being counted, zcut, built and zbuilt
--                     too, else equal to cut and WHOLE
--            b<op>    sums of blocks of entries, see blocks.lua
--            q<w>:<g> the queue of the window at place w, if it is a rolling one: the due of each
--                     of the eight operations of group g: 1 to 8, 9 to 16 and so on
--            q<w>     the first due of each group, if there are several
--   e        hash id -> entry: 1|op|asked|units|state|start|score|job|region|run
--            empty units and score are equal to asked and start; states: p plain,
--            o open, s settled, r released, m a merged row, whose id is a space and
--            a number, and whose asked is its calls; |o at the end is a mark: but
--            for observe mode the charge would have been refused; before it may be another,
--            see holds.lua
--   z:<op>   zset of the entries of 1 unit and more: score -> units:id, or for a
--            merged row units,calls:id
--   y:<op>   zset of the entries of 0 units: score -> 0:id or 0,calls:id
--   r:<op>   zset of the released entries, which no window counts: score -> 0:id
--
-- A cover is a running total of some of the charges in a window. Its key is o: and a digest
-- of the operations that it counts, for a limit over these, or for a share's pairs. Other
-- letters are for totals by job, by label and by meter.
--
-- An operation's number stands for its name, or for a pair "operation@pattern": the charges
-- of the jobs of which this is the narrowest pattern of split.
--
-- A score is the instant at which an entry finishes: its time for a plain charge,
-- the lease's end while a reservation is open. A row, the total of an operation in a window,
-- counts the entries of z with
-- cut < score <= built and those of y with zcut < score <= zbuilt. A window of
-- length 0 counts only open reservations.

local FORMAT, HOLDING = '3', '4' -- before the first hold was taken, and after
local HEAD = 24
local HELD = 3600000000
local HOUR = 3600000000
local WEEK = 604800000000
local LEASE = 86400000000
local DAY = 86400000000
local RECOVERY = 60000000
local TOLERANCE = 60000000
local MAXUNITS = 1000000000000000
local MAXSUM = 9000000000000000
local WHOLE = 9000000000000000 -- built: counted up to the end
local NEVER = 9000000000000000 -- due: nothing to expire
local UNBOUND = 9007199254740992 -- the bound of a limit that does not check an item

local fmt = string.format
local function int(n) return fmt('%.0f', n) end

-- floorTo is the last multiple of p up to n, ceilTo the first from n. Both are exact
-- for whole numbers from 0.
local function floorTo(n, p) return n - math.fmod(n, p) end
local function ceilTo(n, p)
  local over = math.fmod(n, p)
  return over == 0 and n or n - over + p
end

local keyM, keyE = KEYS[1], KEYS[2]
local function zkey(op) return KEYS[3 * op] end
local function ykey(op) return KEYS[1 + 3 * op] end
local function rkey(op) return KEYS[2 + 3 * op] end
local function zset(place) return KEYS[2 + place] end -- place: of z:1, y:1, r:1, z:2 and so on

local M = {}              -- the fields of m as numbers, except texts
local wins, winByKey = {}, {}
local loaded = {}         -- the windows in the order of m's totals
local allCovers = {}
local totals, dirty = {}, {} -- by operation: {zs, ys, mask, fresh, ended, window -> row}; and which changed
-- How many entries a run has read, and may read. The first walk that they do not suffice for goes on
-- by a quarter all the same (then M.extended is true), as its beginning alone may take them all.
local steps, limitSteps = 0, 0
local saved = {}          -- the rarer fields of m as loaded
local nops = 0            -- registered operations, new ones included
