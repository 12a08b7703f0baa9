-- Reads the clock, to check that scripts run on a server, and to learn its time.
--
-- KEYS  a key on the server to ask; the script does not touch it
-- Returns the clock, µs

return string.format('%.0f', clock())
