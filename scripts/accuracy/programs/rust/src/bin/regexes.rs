//! regex: several expressions over each FILE, with captures and without. Prints what was counted.

use regex::Regex;

fn work(path: &str) {
    let text = std::fs::read_to_string(path).expect("a readable file");
    let find = |pattern: &str| Regex::new(pattern).expect("an expression").find_iter(&text).count();
    let words = find(r"\b[a-m]\w+[n-z]\b");
    let numbers = find(r"[0-9]{3,5}");
    let either = find(r"(?i)(hea|tee|oso|agei|nha)[a-z]*");
    let pairs = Regex::new(r"(\w+) (\d+) (\w+)").expect("an expression");
    let captured: usize = text
        .lines()
        .filter_map(|line| pairs.captures(line))
        .map(|found| found[1].len() + found[3].len())
        .sum();
    let replaced = Regex::new(r"e+").expect("an expression").replace_all(&text, "3").len();
    println!("{words} {numbers} {either} {captured} {replaced}");
}

fn main() {
    for path in std::env::args().skip(1) {
        work(&path);
    }
}
