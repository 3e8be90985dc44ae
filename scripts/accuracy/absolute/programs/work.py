"""What Python is used for: dictionaries, classes, comprehensions, strings, regular expressions. work.py PASSES FILE"""
import re
import sys

WORD = re.compile(r"[a-z]\w+")


class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __add__(self, other):
        return Point(self.x + other.x, self.y + other.y)


def words(lines):
    seen = {}
    for line in lines:
        for word in WORD.findall(line):
            seen[word] = seen.get(word, 0) + 1
    return "".join(sorted(seen, key=lambda word: (-seen[word], word))[:10])


def points(count):
    total = Point(0, 0)
    for i in range(count):
        total += Point(i, i % 10)
    return total.x + total.y


def queens(size):
    def place(row, columns, up, down):
        if row == size:
            return 1
        free = (c for c in range(size) if c not in columns and row + c not in up and row - c not in down)
        return sum(place(row + 1, columns | {c}, up | {row + c}, down | {row - c}) for c in free)

    return place(0, frozenset(), frozenset(), frozenset())


def main():
    passes, file = int(sys.argv[1]), sys.argv[2]
    with open(file, encoding="utf-8") as opened:
        lines = opened.readlines()
    check = 0
    for _ in range(passes):
        lengths = [len("-".join(reversed(line.split()))) for line in lines]
        check = (check * 31 + len(words(lines)) + sum(lengths) + points(2000) + queens(5)) % 1000003
    print(check)


main()
