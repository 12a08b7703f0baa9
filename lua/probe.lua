-- Reads the clock: tells whether scripts run here, and what time it is.
--
-- KEYS  one key of the place that is asked (not touched)
-- Returns the clock, µs

return string.format('%.0f', clock())
