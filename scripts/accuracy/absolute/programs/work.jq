[.[] | select(.id % 3 == 0) | {id, sum: (.values | add), named: (.name | test("n1")), upper: (.name | ascii_upcase)}] | group_by(.sum % 10) | map({count: length, largest: (map(.id) | max)})
