# Sums by key, patterns, substitution, arrays and formatting over a text, `n` times. Prints the tallies.
# mawk and gawk: -v n=PASSES -v file=FILE
function tally(line,   count, i, word, fields) {
  count = split(line, fields, " ")
  for (i = 1; i <= count; i++) {
    word = fields[i]
    seen[word]++
    if (word ~ /^[a-m].*t$/) endings++
    else if (word ~ /(ee|oo|st)[aeiou]?/) doubles++
    sum += length(word) * 3 + i % 7
  }
  changed += gsub(/the?/, "TH", line)
  text = substr(line, 3, 9) sprintf("%05d:%s", count, toupper(word))
  checks = (checks * 31 + index(text, "E") + length(text)) % 65521
}
BEGIN {
  while ((getline line < file) > 0) lines[++total] = line
  for (pass = 0; pass < n; pass++) {
    split("", seen)
    for (at = 1; at <= total; at++) tally(lines[at])
    most = 0
    for (word in seen) if (seen[word] > most) most = seen[word]
  }
  print total, endings, doubles, changed, sum, most, checks
}
