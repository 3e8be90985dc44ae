-- What scripts do: tables, strings, closures, metatables, floating point. work.lua PASSES
local Point = {}
Point.__index = Point
Point.__add = function(a, b) return setmetatable({ x = a.x + b.x, y = a.y + b.y }, Point) end

local seed
local function random(limit)
  seed = (seed * 1103515245 + 12345) % 2147483648
  return seed // 65536 % limit
end

local function points(count)
  local sum = setmetatable({ x = 0, y = 0 }, Point)
  for i = 1, count do sum = sum + setmetatable({ x = i, y = random(10) }, Point) end
  return sum.x + sum.y
end

local function sorted(count)
  local list = {}
  for i = 1, count do list[i] = random(30000) end
  table.sort(list, function(a, b) return a < b end)
  return list[count // 2]
end

local function strings(count)
  local counts, words = {}, { "alpha", "beta", "gamma", "delta", "epsilon" }
  for _ = 1, count do
    local key = words[random(5) + 1] .. random(200)
    counts[key] = (counts[key] or 0) + #key
  end
  local total = 0
  for key, value in pairs(counts) do total = total + value + (key:find("7", 1, true) or 0) end
  return total
end

local function matrix(size)
  local a, sum = {}, 0.0
  for i = 1, size do
    a[i] = {}
    for j = 1, size do a[i][j] = (i * 7 + j * 3) % 11 end
  end
  for i = 1, size do
    for j = 1, size do
      local cell = 0.0
      for k = 1, size do cell = cell + a[i][k] * a[k][j] end
      sum = sum + cell ^ 0.5
    end
  end
  return math.floor(sum)
end

local check = 0
for _ = 1, tonumber(arg[1]) do
  seed = 12345
  check = (check * 31 + points(10000) + sorted(4000) + strings(8000) + matrix(24)) % 1000003
end
print(check)
