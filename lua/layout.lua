-- What the scripts on a ledger share.
--
-- Keys of a budget, all under one hash tag {B}:
--   m        hash: v format, last (last seen µs), newest (newest entry's time),
--            born (first decision), n (entries), nops, ops (names in the order
--            of their numbers), sig (their SHA-1: two lists of one length are
--            not the same), wins (live windows), chg (settlements, releases and
--            new periods, after which a walk begins anew), exp (instant of the written expiry, ms), prune (when to
--            look for entries to remove), gone (what finished up to here is
--            forgotten), meters (live buckets), merged (no id of a score up to
--            here is held), rowno (the newest merged row's number), mpos (how
--            far a merge on the way has come), locks (a line each: limit or * for
--            the budget, until, since, why), marks (1: some entries have a mark),
--            lid (the ledger's random id), nid (the newest entry's id), loss (when
--            the last loss was noticed, and the hosts that have reported, by
--            blanks), hosts (each that decided lately and when it was noted, likewise),
--            reset (when a reset began it), seq (charges, settlements, locks and the like
--            so far), pause (until when no merging begins: an export is reading)
--   e        hash id -> entry: 1|op|asked|units|state|start|score|job|region|run
--            units and score are empty where they are asked and start; states:
--            p plain, o open, s settled, r released, m a merged row, whose id
--            is a space and a number, and whose asked is its calls; with |o after
--            the run: observe mode alone kept it from being refused
--   x        hash w|op -> units calls cut built zcut zbuilt due bunits bcalls,
--            the running totals of one window and operation, and what has come
--            back to it; w|* -> units calls due period bunits bcalls
--   z:<op>   zset of the entries of 1 unit and more: score -> units:id, of a
--            merged row units,calls:id
--   y:<op>   zset of the entries of 0 units: score -> 0:id or 0,calls:id
--   r:<op>   zset of the released, which count nowhere: score -> 0:id
--
-- A score is the instant an entry finishes: its time for a plain charge, the
-- lease's end while a reservation is open. A row counts the entries of z with
-- cut < score <= built and those of y with zcut < score <= zbuilt. A window of
-- length 0 counts open reservations alone.

local HELD = 3600000000
local HOUR = 3600000000
local WEEK = 604800000000
local LEASE = 86400000000
local DAY = 86400000000
local RECOVERY = 60000000
local MAXHOSTS = 64
local MAXREPORTS = 256
local TOLERANCE = 60000000
local MAXUNITS = 1000000000000000
local MAXSUM = 9000000000000000
local WHOLE = 9000000000000000 -- built: counted up to the end
local NEVER = 9000000000000000 -- due: nothing to expire
local UNBOUND = 9007199254740992 -- the bound of a limit that does not check an item

local fmt = string.format
local function int(n) return fmt('%.0f', n) end

-- floorTo is the last multiple of p up to n, ceilTo the first from n on; both
-- exact for whole numbers of 0 and more.
local function floorTo(n, p) return n - math.fmod(n, p) end
local function ceilTo(n, p)
  local over = math.fmod(n, p)
  return over == 0 and n or n - over + p
end

local keyM, keyE, keyX = KEYS[1], KEYS[2], KEYS[3]
local function zkey(op) return KEYS[1 + 3 * op] end
local function ykey(op) return KEYS[2 + 3 * op] end
local function rkey(op) return KEYS[3 + 3 * op] end

local M = {}              -- the fields of m as numbers, ops and wins apart
local wins, winByKey = {}, {}
local rows, dirty = {}, {} -- of x, by field; false: not there
local gone = {}            -- fields of x to delete
local steps, limitSteps = 0, 0
local saved = {}          -- what m held of meters and merging
local nops = 0            -- registered operations, new ones included
