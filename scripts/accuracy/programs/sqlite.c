// SQLite: fills, indexes, joins, sorts, updates and empties a table in memory. Prints one checksum.
#include <stdio.h>
#include <stdlib.h>
#include "sqlite3.h"

static long checksum;

static int add(void *unused, int columns, char **values, char **names) {
  (void)unused;
  (void)names;
  for (int i = 0; i < columns; i++) checksum = checksum * 31 % 1000000007 + (values[i] ? atol(values[i]) : 7);
  return 0;
}

static const char *const statements[] = {
    "PRAGMA journal_mode=OFF",
    "CREATE TABLE things(id INTEGER PRIMARY KEY, kind INTEGER, price REAL, name TEXT)",
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60000)"
    " INSERT INTO things SELECT i, (i * 7919) % 97, (i * 104729 % 10007) / 100.0, 'thing ' || (i * 31 % 1009) FROM n",
    "CREATE INDEX by_kind ON things(kind, price)",
    "CREATE TABLE kinds(kind INTEGER PRIMARY KEY, label TEXT)",
    "INSERT INTO kinds SELECT DISTINCT kind, 'kind ' || kind FROM things",
    "SELECT count(*), sum(price) FROM things WHERE name LIKE '%ing 1_3'",
    "SELECT kinds.label, count(*), max(price) FROM things JOIN kinds USING (kind) GROUP BY kinds.kind ORDER BY 3 DESC",
    "SELECT name, avg(price) FROM things GROUP BY name HAVING count(*) > 59 ORDER BY 2 LIMIT 20",
    "UPDATE things SET price = price * 1.1 WHERE kind BETWEEN 20 AND 40",
    "SELECT a.id, b.id FROM things a JOIN things b ON b.kind = a.kind AND b.price = a.price AND b.id > a.id WHERE a.id % 17 = 0 LIMIT 5000",
    "SELECT length(group_concat(upper(substr(name, 3)), '-')) FROM (SELECT name FROM things ORDER BY name, price DESC)",
    "DELETE FROM things WHERE id % 3 = 0",
    "SELECT count(*), total(id) FROM things",
};

int main(void) {
  sqlite3 *db;
  char *error = NULL;
  if (sqlite3_open(":memory:", &db) != SQLITE_OK) return 1;
  for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
    if (sqlite3_exec(db, statements[i], add, NULL, &error) != SQLITE_OK) {
      fprintf(stderr, "%s: %s\n", statements[i], error);
      return 1;
    }
  }
  printf("%ld\n", checksum);
  return sqlite3_close(db) == SQLITE_OK ? 0 : 1;
}
