# What awk is used for: sums by key, patterns, substitution, splitting. Prints the tallies.
{
  lines++
  for (i = 1; i <= NF; i++) {
    seen[$i]++
    if ($i ~ /^[a-m].*t$/) endings++
    else if ($i ~ /(ee|oo|st)[aeiou]?/) doubles++
  }
  changed += gsub(/the?/, "TH")
  long = length($0) > long ? length($0) : long
  sum += $1 * 3 + NR % 7
}
END {
  for (word in seen) if (seen[word] > most) most = seen[word]
  print lines, endings, doubles, changed, long, sum, most
}
