# What Ruby is used for: strings, hashes, blocks, objects, regular expressions. work.rb PASSES FILE
passes = Integer(ARGV[0])
lines = File.readlines(ARGV[1])

Point = Struct.new(:x, :y) do
  def +(other) = Point.new(x + other.x, y + other.y)
end

def words(lines)
  seen = Hash.new(0)
  lines.each { |line| line.scan(/\w+/) { |word| seen[word] += 1 } }
  seen.sort_by { |word, count| [-count, word] }.first(10).map(&:first).join
end

def rewrite(lines)
  lines.sum { |line| line.gsub(/\d+/) { |number| (number.to_i + 1).to_s }.split(' ').reverse.join('-').length }
end

def points(count)
  sum = (1..count).inject(Point.new(0, 0)) { |total, i| total + Point.new(i, i % 10) }
  sum.x + sum.y
end

def collatz(limit)
  longest = 0
  (1...limit).each do |start|
    steps = 0
    value = start
    until value == 1
      value = value.even? ? value / 2 : 3 * value + 1
      steps += 1
    end
    longest = steps if steps > longest
  end
  longest
end

check = 0
passes.times { check = (check * 31 + words(lines).length + rewrite(lines) + points(2000) + collatz(300)) % 1_000_003 }
puts check
