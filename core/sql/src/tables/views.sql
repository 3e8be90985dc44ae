CREATE VIEW applications AS
SELECT epoch, app, event, sum(count)::BIGINT AS count
FROM samples
GROUP BY ALL;

CREATE VIEW instances AS
SELECT epoch, app, instance, event, sum(count)::BIGINT AS count
FROM samples
GROUP BY ALL;

-- The id of an epoch that is named by its id, its name or 'latest'; an error if there is none.
CREATE MACRO dwell_epoch(selector) AS coalesce((
  SELECT e.epoch
  FROM epochs AS e
  WHERE e.epoch = selector OR e.name = selector OR selector = 'latest'
  ORDER BY e.epoch = selector DESC, e.name IS NOT DISTINCT FROM selector DESC,
    epoch_ms(e.start) > epoch_ms(now()) + 86400000, -- the clock was wrong
    e.start DESC, e.epoch DESC
  LIMIT 1
), error(concat('no recording has the id or the name ', selector)));

-- What changed between two epochs, by procedure. Builds of one program are the same, by its path; `image` is then that of b if it has
-- samples there. z is the difference of the shares in standard deviations of sampling noise.
CREATE MACRO dwell_diff(a, b) AS TABLE
WITH named AS (SELECT dwell_epoch(a) AS id_a, dwell_epoch(b) AS id_b
), counted AS (
  SELECT p.event, arg_max(p.image, p.epoch = n.id_b) AS image, p.procedure,
    coalesce(sum(p.count) FILTER (p.epoch = n.id_a), 0)::BIGINT AS samples_a,
    coalesce(sum(p.count) FILTER (p.epoch = n.id_b), 0)::BIGINT AS samples_b
  FROM procedure_samples AS p
  JOIN named AS n ON p.epoch = n.id_a OR p.epoch = n.id_b
  LEFT JOIN images AS i ON i.image = p.image
  GROUP BY p.event, coalesce(i.path, p.image), p.procedure
), shares AS (
  SELECT *,
    sum(samples_a) OVER (PARTITION BY event)::DOUBLE AS all_a,
    sum(samples_b) OVER (PARTITION BY event)::DOUBLE AS all_b
  FROM counted
)
SELECT event, image, procedure, samples_a, samples_b,
  samples_a / nullif(all_a, 0) AS share_a,
  samples_b / nullif(all_b, 0) AS share_b,
  share_b - share_a AS change,
  change / nullif(sqrt((samples_a + samples_b) / (all_a + all_b) * (1 - (samples_a + samples_b) / (all_a + all_b))
    * (1 / nullif(all_a, 0) + 1 / nullif(all_b, 0))), 0) AS z
FROM shares
ORDER BY abs(change) DESC NULLS LAST, image, procedure;

-- The instructions of a procedure. The image is given by its id, its path or its file name; the procedure as linkage name or demangled.
CREATE MACRO dwell_annotate(image, procedure) AS TABLE
WITH named AS (SELECT image AS wanted_image, procedure AS wanted_procedure)
SELECT i.*
FROM instructions AS i, named AS n
WHERE (i.procedure = n.wanted_procedure OR i.demangled = n.wanted_procedure)
  AND (i.image = n.wanted_image OR i.image IN (
    SELECT m.image FROM images AS m, named AS o WHERE m.path = o.wanted_image OR ends_with(m.path, '/' || o.wanted_image)))
ORDER BY i.epoch, i.image, i.address;

-- The samples of each line of a source file, which is given by its path or the end of it.
CREATE MACRO dwell_source(file) AS TABLE
WITH named AS (SELECT file AS wanted)
SELECT s.epoch, s.event, l.file, l.line, sum(s.count)::BIGINT AS count
FROM named AS n
JOIN lines AS l ON l.file = n.wanted OR ends_with(l.file, '/' || n.wanted)
JOIN samples AS s ON s.image = l.image AND s."offset" = l."offset"
GROUP BY ALL
ORDER BY s.epoch, s.event, l.file, l.line;
