SELECT kind, count(*), sum(amount), max(day) FROM events GROUP BY kind ORDER BY 3 DESC;
SELECT a.day, count(*) FROM events a JOIN events b ON b.kind = a.kind AND b.day = a.day + 1 WHERE a.id % 16 = 0 GROUP BY a.day ORDER BY a.day;
SELECT count(*) FROM events WHERE kind LIKE '%1%' AND amount > 50 AND substr(kind, 5) || day LIKE '2%7';
UPDATE events SET amount = -amount WHERE day BETWEEN 100 AND 120;
