/* Text: naive, Knuth-Morris-Pratt and Horspool search, edit distance, a CRC, base64, UTF-8 counting. */
#include "random.h"
#include <stdio.h>
#include <string.h>

enum { TEXT = 400000, WORD = 300 };

static char text[TEXT + 1], encoded[TEXT * 4 / 3 + 4];
static uint32_t crc_table[256];

static int naive(const char *needle)
{
    int found = 0;
    size_t length = strlen(needle);
    for (const char *at = text; *at; at++)
        found += *at == *needle && strncmp(at, needle, length) == 0;
    return found;
}

static int knuth(const char *needle)
{
    int fail[64] = {0}, m = (int)strlen(needle), found = 0;
    for (int i = 1, k = 0; i < m; i++) {
        while (k && needle[k] != needle[i])
            k = fail[k - 1];
        fail[i] = k += needle[k] == needle[i];
    }
    for (int i = 0, k = 0; i < TEXT; i++) {
        while (k && needle[k] != text[i])
            k = fail[k - 1];
        k += needle[k] == text[i];
        if (k == m) {
            found++;
            k = fail[k - 1];
        }
    }
    return found;
}

static int horspool(const char *needle)
{
    int skip[256], m = (int)strlen(needle), found = 0;
    for (int i = 0; i < 256; i++)
        skip[i] = m;
    for (int i = 0; i < m - 1; i++)
        skip[(unsigned char)needle[i]] = m - 1 - i;
    for (int at = 0; at + m <= TEXT; at += skip[(unsigned char)text[at + m - 1]]) {
        int j = m - 1;
        while (j >= 0 && text[at + j] == needle[j])
            j--;
        found += j < 0;
    }
    return found;
}

static int distance(const char *a, const char *b)
{
    static int row[WORD + 1];
    for (int j = 0; j <= WORD; j++)
        row[j] = j;
    for (int i = 1; i <= WORD; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= WORD; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[WORD];
}

static uint32_t checksum(void)
{
    uint32_t crc = ~0u;
    for (int i = 0; i < TEXT; i++)
        crc = crc_table[(crc ^ (unsigned char)text[i]) & 255] ^ crc >> 8;
    return ~crc;
}

static int encode(void)
{
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *out = encoded;
    for (int i = 0; i + 2 < TEXT; i += 3) {
        uint32_t three = (uint32_t)text[i] << 16 | (uint32_t)text[i + 1] << 8 | (uint32_t)text[i + 2];
        for (int shift = 18; shift >= 0; shift -= 6)
            *out++ = alphabet[three >> shift & 63];
    }
    return (int)(out - encoded);
}

static int words(void)
{
    int count = 0, inside = 0;
    for (int i = 0; i < TEXT; i++) {
        int letter = text[i] != ' ' && text[i] != '\n';
        count += letter && !inside;
        inside = letter;
    }
    return count;
}

int main(void)
{
    for (int i = 0; i < TEXT; i++)
        text[i] = "etaoin shrdlu\netaetaet a"[random_word() % 24];
    for (uint32_t i = 0; i < 256; i++) {
        crc_table[i] = i;
        for (int bit = 0; bit < 8; bit++)
            crc_table[i] = crc_table[i] >> 1 ^ (crc_table[i] & 1 ? 0xedb88320u : 0);
    }
    static const char *const needles[] = {"eta", "shrdlu e", "tatata", "noise in the data", "et a et a"};
    int found = 0;
    for (int i = 0; i < 5; i++)
        found += naive(needles[i]) + 2 * knuth(needles[i]) + 3 * horspool(needles[i]) + (strstr(text, needles[i]) != NULL);
    for (int i = 0; i < 40; i++)
        found += distance(text + i * WORD, text + i * 2 * WORD);
    printf("%d %x %d %d\n", found, checksum(), encode(), words());
}
