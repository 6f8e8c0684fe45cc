"""Number of samples in a metrics table, and a digest of them, as read by engines other than Floodmark.

    python readers.py deltalake|duckdb|datafusion|polars|spark TABLE

Prints `samples`, `rows` (samples that were sent twice count twice) and `digest`: the sum, modulo 2^64, of a hash of
each (series, millisecond, bits of the value). The digest does not depend on order. Two engines have the same digest only if they agree
on every bit of every sample. Needs `deltalake` (which includes DataFusion), `numpy` and `pyarrow`; for the other engines also `duckdb`,
`polars`, or, for Spark, `pyspark==4.2.*` and the jars of delta-spark 4.4.0 in the directory DELTA_SPARK_JARS.
"""

import glob
import json
import os
import sys

import numpy
import pyarrow

MULTIPLIERS = [numpy.uint64(m) for m in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)]


def digest(series, milliseconds, values):
    """Counts and digest of samples, one sample per row. `series` has the 16 bytes of each key as a pair of u64. Equal rows count once."""
    rows = numpy.empty(len(values), dtype=[("a", "u8"), ("b", "u8"), ("t", "u8"), ("v", "u8")])
    rows["a"], rows["b"] = series[:, 0], series[:, 1]
    rows["t"] = milliseconds.astype("i8").view("u8")
    rows["v"] = values.astype("f8").view("u8")
    once = numpy.unique(rows)
    with numpy.errstate(over="ignore"):
        mixed = once["a"] ^ (once["b"] * MULTIPLIERS[0])
        mixed = (mixed ^ (mixed >> numpy.uint64(29))) * MULTIPLIERS[1] + once["t"]
        mixed = (mixed ^ (mixed >> numpy.uint64(32))) * MULTIPLIERS[2] + once["v"]
        mixed = (mixed ^ (mixed >> numpy.uint64(29))) * MULTIPLIERS[0]
        total = int(mixed.sum(dtype="u8"))
    return {"samples": len(once), "rows": len(rows), "digest": "%016x" % total}


def deltalake(path):
    """Reads the lists and computes the values here: (base + mantissa) / 10^exponent, one division of exact doubles."""
    from deltalake import DeltaTable

    columns = ["series", "timestamps", "exponent", "base", "mantissas", "floats"]
    table = DeltaTable(path).to_pyarrow_table(columns=columns)
    # a table without rows has no batches
    keys, times, values = [numpy.empty((0, 2), "u8")], [numpy.empty(0, "i8")], [numpy.empty(0)]
    for batch in table.to_batches():
        get = {name: batch.column(name) for name in columns}
        lists = get["timestamps"]
        lengths = lists.value_lengths().to_numpy()
        at = numpy.frombuffer(b"".join(get["series"].to_pylist()), "u8").reshape(-1, 2)
        keys.append(numpy.repeat(at, lengths, axis=0))
        times.append(lists.flatten().cast(pyarrow.timestamp("ms"), safe=True).cast(pyarrow.int64()).to_numpy())
        values.append(_values(get["exponent"], get["base"], get["mantissas"], get["floats"]))
    return digest(numpy.concatenate(keys), numpy.concatenate(times), numpy.concatenate(values))


def _values(exponents, bases, mantissas, floats):
    """Values of all rows, in order. A row has either mantissas or doubles."""
    parts = []
    whole, doubles = mantissas.flatten().to_numpy(), floats.flatten().to_numpy()
    of_whole, of_doubles = (c.value_lengths().fill_null(0).to_numpy() for c in (mantissas, floats))
    exponents, bases = exponents.to_pylist(), bases.to_pylist()
    at = [0, 0]
    for exponent, base, some, others in zip(exponents, bases, of_whole, of_doubles):
        if some:
            parts.append((whole[at[0] : at[0] + some] + base).astype("f8") / 10.0**exponent)
        if others:
            parts.append(doubles[at[1] : at[1] + others])
        at = [at[0] + some, at[1] + others]
    return numpy.concatenate(parts) if parts else numpy.empty(0)


def duckdb(path):
    """Reads through the view of docs/sql.md."""
    import duckdb
    from deltalake import DeltaTable

    files = [f.removeprefix("file://") for f in DeltaTable(path).file_uris()]
    query = """
        SELECT series, epoch_ms(timestamp) AS t, value FROM (
            SELECT series, unnest(timestamps) AS timestamp,
                   unnest(coalesce(floats, list_transform(mantissas, lambda m: (base + m)::DOUBLE / pow(10, exponent)))) AS value
            FROM read_parquet(?, hive_partitioning = true))"""
    found = duckdb.sql(query, params=[files]).to_arrow_table()
    series = numpy.frombuffer(b"".join(found.column("series").to_pylist()), "u8").reshape(-1, 2)
    return digest(series, found.column("t").to_numpy(), found.column("value").to_numpy())


def datafusion(path):
    """Reads through the query of docs/sql.md."""
    from deltalake import DeltaTable, QueryBuilder

    query = """
        SELECT series, CAST(t AS BIGINT) / 1000 AS t,
               CASE WHEN mantissa IS NULL THEN number ELSE CAST(base + mantissa AS DOUBLE) / power(CAST(10 AS DOUBLE), exponent) END AS value
        FROM (
            SELECT series, exponent, base, unnest(timestamps) AS t, unnest(mantissas) AS mantissa, unnest(floats) AS number
            FROM metrics)"""
    found = pyarrow.table(QueryBuilder().register("metrics", DeltaTable(path)).execute(query).read_all())
    series = numpy.frombuffer(b"".join(found.column("series").to_pylist()), "u8").reshape(-1, 2)
    return digest(series, found.column("t").to_numpy(), found.column("value").to_numpy())


def polars(path):
    """Reads by the expression of docs/sql.md."""
    import polars as pl

    samples = (
        pl.scan_delta(path)
        .with_columns(
            pl.coalesce(
                "floats",
                (pl.col("mantissas") + pl.col("base")).cast(pl.List(pl.Float64))
                / 10.0 ** pl.col("exponent").cast(pl.Float64),
            ).alias("value")
        )
        .select("series", "timestamps", "value")
        .explode("timestamps", "value")
        .collect()
    )
    series = numpy.frombuffer(b"".join(samples["series"].to_list()), "u8").reshape(-1, 2)
    return digest(series, samples["timestamps"].dt.epoch("ms").to_numpy(), samples["value"].to_numpy())


def spark(path):
    """Reads through the view of docs/sql.md, with Spark's own Delta reader."""
    from pyspark.sql import SparkSession

    jars = ",".join(sorted(glob.glob(os.path.join(os.environ["DELTA_SPARK_JARS"], "*.jar"))))
    settings = {
        "spark.jars": jars,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.driver.maxResultSize": "3g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    session.sql(f"""
        CREATE TEMPORARY VIEW samples AS
        SELECT date, name, labels, series, sample.timestamps AS timestamp, sample.numbers AS value
        FROM (
            SELECT date, name, labels, series, timestamps,
                   coalesce(floats, transform(mantissas, m -> CAST(base + m AS DOUBLE) / pow(10D, exponent))) AS numbers
            FROM delta.`{path}`
        ) LATERAL VIEW explode(arrays_zip(timestamps, numbers)) AS sample""")
    found = session.sql("SELECT series, unix_millis(timestamp) AS t, value FROM samples").toArrow()
    series = numpy.frombuffer(b"".join(found.column("series").to_pylist()), "u8").reshape(-1, 2)
    return digest(series, found.column("t").to_numpy(), found.column("value").to_numpy())


if __name__ == "__main__":
    engines = {"deltalake": deltalake, "duckdb": duckdb, "datafusion": datafusion, "polars": polars, "spark": spark}
    engine = engines[sys.argv[1]]
    print(json.dumps(engine(sys.argv[2])), flush=True)
    if sys.argv[1] != "spark":
        os._exit(0)  # threads of these libraries sometimes abort during Python's usual shutdown
