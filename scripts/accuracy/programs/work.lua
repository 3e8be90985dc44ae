-- What scripts do: tables, strings, closures, metatables, floating point. Prints one checksum.
local seed = 12345
local function random(limit)
  seed = (seed * 1103515245 + 12345) % 2147483648
  return seed // 65536 % limit
end

local Point = {}
Point.__index = Point
Point.__add = function(a, b) return setmetatable({ x = a.x + b.x, y = a.y + b.y }, Point) end

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
  for i = 1, count do
    local key = words[random(5) + 1] .. random(200)
    counts[key] = (counts[key] or 0) + #key
  end
  local total = 0
  for key, value in pairs(counts) do total = total + value + (key:find("7", 1, true) or 0) end
  return total
end

local function nbody(steps)
  local xs, vs = { 0.1, 1.3, 2.9, -4.2 }, { 0, 0.1, -0.2, 0.05 }
  for _ = 1, steps do
    for i = 1, #xs do
      for j = 1, #xs do
        if i ~= j then
          local d = xs[j] - xs[i]
          vs[i] = vs[i] + 0.001 * d / (d * d + 0.5) ^ 1.5
        end
      end
    end
    for i = 1, #xs do xs[i] = xs[i] + 0.001 * vs[i] end
  end
  return math.floor(xs[1] * 1e6)
end

local function queens(size)
  local solutions, columns, up, down = 0, {}, {}, {}
  local function place(row)
    if row > size then solutions = solutions + 1 return end
    for column = 1, size do
      if not (columns[column] or up[row + column] or down[row - column + size]) then
        columns[column], up[row + column], down[row - column + size] = true, true, true
        place(row + 1)
        columns[column], up[row + column], down[row - column + size] = nil, nil, nil
      end
    end
  end
  place(1)
  return solutions
end

print(points(300000) + sorted(60000) + strings(200000) + nbody(20000) + queens(8))
