# Fields, arrays, strings and patterns over a text.
{
    for (i = 1; i <= NF; i++) {
        count[$i]++
        length_sum += length($i)
        if ($i ~ /^[aeiou].*[nrst]$/) vowels++
    }
    if (NR % 3 == 0) { gsub(/[aeiou]/, "-"); changed += index($0, "--") }
    last = substr($0, length($0) / 2) last
    if (NR % 20 == 0) last = toupper(substr(last, 1, 60))
}
END {
    for (word in count) if (count[word] > best) best = count[word]
    printf "%d %d %d %d %s\n", length_sum, vowels, changed, best, substr(last, 1, 5)
}
