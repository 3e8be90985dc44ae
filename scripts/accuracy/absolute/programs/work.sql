CREATE TABLE events(id INTEGER PRIMARY KEY, kind TEXT, amount REAL, day INTEGER);
WITH RECURSIVE rows(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM rows WHERE i < 8000)
INSERT INTO events SELECT i, 'kind' || (i * 7919 % 23), i * 31 % 997 / 7.0, i % 365 FROM rows;
CREATE INDEX by_kind ON events(kind, day);
.output /dev/null
