-- Tables, strings, closures, garbage, numbers: what Lua programs do.
local state = 42
local function random(n)
  state = (state * 1103515245 + 12345) % 2147483648
  return state % n
end

local function sieve(n)
  local composite, count = {}, 0
  for i = 2, n do
    if not composite[i] then
      count = count + 1
      for j = i * i, n, i do composite[j] = true end
    end
  end
  return count
end

local function words(n)
  local count, order = {}, {}
  for _ = 1, n do
    local word = string.char(97 + random(26), 97 + random(6), 97 + random(3))
    if not count[word] then order[#order + 1] = word end
    count[word] = (count[word] or 0) + 1
  end
  table.sort(order, function(a, b) return count[a] > count[b] or (count[a] == count[b] and a < b) end)
  return table.concat(order, ' ', 1, 10)
end

local Point = {}
Point.__index = Point
Point.__add = function(a, b) return setmetatable({ x = a.x + b.x, y = a.y + b.y }, Point) end
function Point:length() return math.sqrt(self.x * self.x + self.y * self.y) end

local function points(n)
  local sum = setmetatable({ x = 0, y = 0 }, Point)
  for i = 1, n do sum = sum + setmetatable({ x = i % 7, y = i % 11 }, Point) end
  return sum:length()
end

local function fibonacci(n) return n < 2 and n or fibonacci(n - 1) + fibonacci(n - 2) end

local function patterns(n)
  local text, found = {}, 0
  for i = 1, n do text[i] = 'key' .. i .. '=' .. random(1000) .. ';' end
  for key, value in table.concat(text):gmatch('(%w+)=(%d+);') do found = found + #key + tonumber(value) end
  return found
end

print(sieve(60000), words(12000), points(30000), fibonacci(20), patterns(5000))
