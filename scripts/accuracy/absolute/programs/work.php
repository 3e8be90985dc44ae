<?php
// What PHP is used for: strings, arrays, sorting, templates, regular expressions, JSON. work.php PASSES FILE
function words(array $lines): string {
    $seen = [];
    foreach ($lines as $line) {
        foreach (explode(' ', trim($line)) as $word) {
            $seen[$word] = ($seen[$word] ?? 0) + 1;
        }
    }
    arsort($seen);
    return implode(',', array_slice(array_keys($seen), 0, 10));
}

function render(array $lines): int {
    $page = '';
    foreach ($lines as $number => $line) {
        $page .= sprintf("<li id=\"%d\">%s</li>\n", $number, htmlspecialchars(ucfirst(str_replace('e', '&', $line))));
    }
    return strlen(preg_replace('/&amp;(\w)/', '<b>$1</b>', $page));
}

function matrix(int $size): float {
    $a = [];
    for ($i = 0; $i < $size; $i++) for ($j = 0; $j < $size; $j++) $a[$i][$j] = ($i * 7 + $j * 3) % 11;
    $sum = 0.0;
    for ($i = 0; $i < $size; $i++) {
        for ($j = 0; $j < $size; $j++) {
            $cell = 0.0;
            for ($k = 0; $k < $size; $k++) $cell += $a[$i][$k] * $a[$k][$j];
            $sum += sqrt($cell);
        }
    }
    return $sum;
}

[, $passes, $file] = $argv;
$lines = file($file);
$check = 0;
for ($pass = 0; $pass < $passes; $pass++) {
    $decoded = json_decode(json_encode(array_slice($lines, 0, 100)));
    $check = ($check * 31 + strlen(words($lines)) + render($lines) + (int) matrix(24) + count($decoded)) % 1000003;
}
echo "$check\n";
