CREATE VIEW applications AS
SELECT epoch, app, event, sum(count)::BIGINT AS count
FROM samples
GROUP BY ALL;

CREATE VIEW instances AS
SELECT epoch, app, instance, event, sum(count)::BIGINT AS count
FROM samples
GROUP BY ALL;

-- The id of an epoch that is named by its id, its name or 'latest'.
CREATE MACRO dwell_epoch(selector) AS (
  SELECT e.epoch
  FROM epochs AS e
  WHERE e.epoch = selector OR e.name = selector OR selector = 'latest'
  ORDER BY e.epoch = selector DESC, e.name IS NOT DISTINCT FROM selector DESC, e.start DESC, e.epoch DESC
  LIMIT 1
);

-- What changed between two epochs, by procedure. z is the difference of the shares in standard deviations of sampling noise.
CREATE MACRO dwell_diff(a, b) AS TABLE
WITH counted AS (
  SELECT event, image, procedure,
    coalesce(sum(count) FILTER (epoch = dwell_epoch(a)), 0)::BIGINT AS samples_a,
    coalesce(sum(count) FILTER (epoch = dwell_epoch(b)), 0)::BIGINT AS samples_b
  FROM procedure_samples
  WHERE epoch = dwell_epoch(a) OR epoch = dwell_epoch(b)
  GROUP BY ALL
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
