// The C++ library: strings into ordered and hashed maps, sorting with comparators, streams, regular expressions by hand.
#include "random.h"
#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

static std::string word()
{
    std::string out;
    unsigned length = 2 + random_word() % 6;
    for (unsigned i = 0; i < length; i++)
        out += "aeioutnsrlkm"[random_word() % 12];
    return out;
}

static std::vector<std::string> split(const std::string &text)
{
    std::vector<std::string> out;
    std::istringstream stream(text);
    std::string piece;
    while (stream >> piece)
        out.push_back(piece);
    return out;
}

// `.` any letter, `*` repeats the letter before it.
static bool matches(const char *pattern, const char *text)
{
    if (!*pattern)
        return !*text;
    bool one = *text && (*pattern == '.' || *pattern == *text);
    if (pattern[1] == '*')
        return matches(pattern + 2, text) || (one && matches(pattern, text + 1));
    return one && matches(pattern + 1, text + 1);
}

int main()
{
    std::string text;
    for (int i = 0; i < 30000; i++)
        text += word() + (i % 11 ? ' ' : '\n');
    std::vector<std::string> words = split(text);

    std::map<std::string, int> ordered;
    std::unordered_map<std::string, std::vector<int>> places;
    for (size_t i = 0; i < words.size(); i++) {
        ordered[words[i]]++;
        places[words[i]].push_back(int(i));
    }
    std::vector<std::pair<std::string, int>> ranked(ordered.begin(), ordered.end());
    std::stable_sort(ranked.begin(), ranked.end(), [](const auto &a, const auto &b) { return a.second > b.second; });
    std::sort(words.begin(), words.end(), [](const std::string &a, const std::string &b) {
        return a.size() != b.size() ? a.size() < b.size() : a < b;
    });
    std::multiset<size_t> gaps;
    for (const auto &[name, where] : places)
        for (size_t i = 1; i < where.size(); i++)
            gaps.insert(size_t(where[i] - where[i - 1]));
    int matched = 0;
    for (const auto &w : words)
        matched += matches("a*.n*t.*", w.c_str()) + matches(".*ki*.", w.c_str());
    std::ostringstream out;
    for (const auto &[name, count] : ranked)
        out << name << '=' << count << ';';
    std::printf("%zu %zu %d %s\n", out.str().size(), *std::next(gaps.begin(), long(gaps.size() / 2)), matched, ranked[5].first.c_str());
}
