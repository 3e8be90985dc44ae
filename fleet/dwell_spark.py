"""Rolls up and analyses the recordings of many machines on a Spark cluster.

Enters: recordings that ``dwell push`` sent to an object store. Leaves: roll-ups, as ``dwell roll-up`` makes them, and rows of
analysed tables (``PREFIX/tables/``, see core/fleet/FORMAT.md), which ``dwell sql`` reads in place of computing them.

Spark distributes the work, repeats what fails and writes the tables. The work itself is done by processes of ``dwell``, one for each
group of recordings and one for each binary: so answers are those of one machine. Run it as often as you like: what is done is not done again.

    spark-submit --packages org.apache.hadoop:hadoop-aws:3.5.0 fleet/dwell_spark.py --db s3://profiles/production
"""

import argparse
import io
import json
import os
import subprocess
import sys
import time
import urllib.parse

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

TABLES = ("instructions", "stalls", "blocks", "edges", "analyses")


def dwell(program, words):
    """Runs dwell and returns its standard output. Raises RuntimeError with its last line if it fails."""
    done = subprocess.run([program, *words], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise RuntimeError(said[-1] if said else f"{program} ended with status {done.returncode}")
    return done.stdout


def with_query(place, **parameters):
    """Returns the place with further parameters after its question mark."""
    added = urllib.parse.urlencode(parameters)
    return f"{place}{'&' if '?' in place else '?'}{added}"


def literal(text):
    """Returns a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def roll_up(spark, options):
    """Makes the roll-ups of all groups of recordings, each in a task. Returns their number and that of the recordings in them."""
    today = ["--today"] if options.today else []
    plan = [*today, "--recordings", str(options.recordings), "--plan", "--json"]
    groups = json.loads(dwell(options.dwell, ["roll-up", "--db", options.db, *plan]))["groups"]
    if not groups:
        return 0, 0
    program, place = options.dwell, options.db

    def make(ids):
        made = json.loads(dwell(program, ["roll-up", "--db", place, "--only", ",".join(ids), "--json"]))
        return made["roll_ups"], made["warnings"]

    done = spark.sparkContext.parallelize(groups, len(groups)).map(make).collect()
    for warning in (warning for _, warnings in done for warning in warnings):
        print(f"roll-up: {warning}", file=sys.stderr)
    made = [one for roll_ups, _ in done for one in roll_ups]
    return len(made), sum(one["recordings"] for one in made)


def is_there(spark, name):
    """Returns whether there is an object with this name."""
    path = spark.sparkContext._jvm.org.apache.hadoop.fs.Path(name)
    return path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).exists(path)


def pairs(spark, options, place, stored):
    """Returns the epochs and images whose rows are not stored, those with the most samples first: as many as have the wanted share of all
    samples of time. Their order lets long tasks begin early."""
    query = (
        "SELECT epoch, image, sum(count)::BIGINT AS n FROM samples SEMI JOIN events e USING (epoch, event) "
        "WHERE event IN (SELECT event FROM events WHERE seconds_per_sample IS NOT NULL OR unit = 'cycles') "
        "AND image <> 'unknown' AND image NOT LIKE 'jit:%' AND image NOT LIKE 'named:%' GROUP BY ALL ORDER BY n DESC, epoch, image"
    )
    lines = dwell(options.dwell, ["sql", "--db", place, "--format", "jsonl", query]).decode().splitlines()
    rows = [json.loads(line) for line in lines]
    there = set()
    if is_there(spark, f"{stored}/_SUCCESS"):
        known = spark.read.parquet(stored).select("of_epoch", "of_image").distinct().collect()
        there = {(row.of_epoch, row.of_image) for row in known}
    wanted, total, taken = [], sum(row["n"] for row in rows), 0
    for row in rows:
        if taken >= options.share * total:
            break
        taken += row["n"]
        if (row["epoch"], row["image"]) not in there:
            wanted.append((row["epoch"], row["image"]))
    return wanted


def analyse(spark, options, table):
    """Computes the rows of a table for each binary of each roll-up, each in a process of its own, and stores them. Returns the number of
    binaries and of rows."""
    place = with_query(options.db, rollups="shown")
    bucket, prefix = options.bucket
    stored = f"s3a://{bucket}/{prefix}tables/{table}"
    wanted = pairs(spark, options, place, stored)
    if not wanted:
        return 0, 0
    program = options.dwell
    empty = dwell(program, ["sql", "--db", place, "--format", "parquet", f"SELECT * FROM {table} WHERE false"])
    columns = pq.read_schema(io.BytesIO(empty)).remove_metadata()
    schema = columns.append(pa.field("of_epoch", pa.string())).append(pa.field("of_image", pa.string()))

    def compute(batches):
        for batch in batches:
            for epoch, image in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist()):
                query = f"SELECT * FROM {table} WHERE epoch = {literal(epoch)} AND image = {literal(image)}"
                rows = pq.read_table(io.BytesIO(dwell(program, ["sql", "--db", place, "--format", "parquet", query])))
                rows = rows.cast(columns)
                for name, value in (("of_epoch", epoch), ("of_image", image)):
                    rows = rows.append_column(name, pa.array([value] * len(rows), pa.string()))
                yield from rows.to_batches()

    # A task for each binary: one that takes long holds up no other, and a failure repeats no more than itself.
    tasks = spark.sparkContext.parallelize(wanted, len(wanted)).toDF(["epoch", "image"])
    done = tasks.mapInArrow(compute, from_arrow_schema(schema))
    done.write.mode("append").option("compression", "zstd").partitionBy("of_epoch", "of_image").parquet(stored)
    return len(wanted), spark.read.parquet(stored).count()


def session():
    """Returns the session, with the store and the credentials that the tools of AWS find, as far as nothing else is set."""
    builder = SparkSession.builder.appName("dwell")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        builder = builder.config("spark.hadoop.fs.s3a.endpoint", endpoint)
        builder = builder.config("spark.hadoop.fs.s3a.path.style.access", "true")
    region = os.environ.get("AWS_REGION")
    if region:
        builder = builder.config("spark.hadoop.fs.s3a.endpoint.region", region)
    spark = builder.getOrCreate()
    # Build IDs are texts, even those that look like numbers.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    spark.sparkContext.setLogLevel("WARN")
    return spark


def parse(words):
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--db", required=True, metavar="PLACE", help="s3://BUCKET/PREFIX, if you like with ?since=DATE&until=DATE")
    parser.add_argument("--dwell", default="dwell", metavar="PROGRAM", help="dwell, on each worker [default: dwell]")
    parser.add_argument("--recordings", type=int, default=1000, metavar="N", help="the most recordings in a roll-up [default: 1000]")
    parser.add_argument("--today", action="store_true", help="also roll up recordings that began today")
    parser.add_argument("--tables", default="instructions,stalls,analyses", metavar="NAMES", help="tables to compute, of instructions, stalls, blocks, edges, analyses (for dwell's other commands); empty: none [default: instructions,stalls,analyses]")
    parser.add_argument("--share", type=float, default=0.99, metavar="SHARE", help="analyse the binaries that have this share of all samples [default: 0.99]")
    options = parser.parse_args(words)
    options.tables = [name for name in options.tables.split(",") if name]
    unknown = [name for name in options.tables if name not in TABLES]
    if unknown:
        parser.error(f"--tables: there is no table {unknown[0]}: expected some of {', '.join(TABLES)}")
    place = urllib.parse.urlsplit(options.db)
    if place.scheme != "s3" or not place.netloc:
        parser.error(f"--db: {options.db} is no place in an object store: expected s3://BUCKET/PREFIX")
    prefix = place.path.strip("/")
    options.bucket = place.netloc, f"{prefix}/" if prefix else ""
    return options


def main(words):
    """Runs the job and tells what it did, as one line of JSON on standard output."""
    options = parse(words)
    spark = session()
    told = {}
    try:
        start = time.monotonic()
        made, recordings = roll_up(spark, options)
        told["roll_ups"] = {"made": made, "recordings": recordings, "seconds": round(time.monotonic() - start, 3)}
        for table in options.tables:
            start = time.monotonic()
            images, rows = analyse(spark, options, table)
            told[table] = {"images": images, "rows": rows, "seconds": round(time.monotonic() - start, 3)}
    except (RuntimeError, OSError) as error:
        sys.exit(f"dwell_spark.py: {error}")
    finally:
        spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1:])
