package redistest

// Struct is the part of Redis's Lua library struct that the scripts use, for miniredis, which
// does not have it: doubles, least byte first. Elsewhere it changes nothing.
const Struct = `
local struct = rawget(_G, 'struct')
if not struct then
  local function bytes(n)
    if n == 0 then return string.rep('\0', 8) end
    local sign = n < 0 and 128 or 0
    local fraction, exponent = math.frexp(math.abs(n))
    local mantissa = (fraction * 2 - 1) * 2 ^ 52
    exponent = exponent + 1022
    local list = {}
    for i = 1, 6 do
      list[i] = mantissa % 256
      mantissa = (mantissa - list[i]) / 256
    end
    list[7], list[8] = exponent % 16 * 16 + mantissa, sign + math.floor(exponent / 16)
    return string.char(unpack(list))
  end
  local function number(text, at)
    local b = {string.byte(text, at, at + 7)}
    local exponent, mantissa = b[8] % 128 * 16 + math.floor(b[7] / 16), b[7] % 16
    for i = 6, 1, -1 do mantissa = mantissa * 256 + b[i] end
    if exponent == 0 and mantissa == 0 then return 0 end
    local n = (1 + mantissa / 2 ^ 52) * 2 ^ (exponent - 1023)
    return b[8] >= 128 and -n or n
  end
  struct = {
    pack = function(format, ...)
      local list, numbers = {}, {...}
      for i = 1, #format do list[i] = bytes(numbers[i]) end
      return table.concat(list)
    end,
    unpack = function(format, text, at)
      local list = {}
      at = at or 1
      for i = 1, #format do
        list[i], at = number(text, at), at + 8
      end
      list[#list + 1] = at
      return unpack(list)
    end,
  }
end
`
