"""Asks a table of records, which a query calls t. Usage: ask.py ENGINE TABLE QUERY. Prints the rows as JSON.

DuckDB evaluates the query. ENGINE says who reads the files: duckdb, which gets the list of live files from the log, or the package
deltalake."""

import json
import os
import sys

import duckdb
from deltalake import DeltaTable

engine, path, query = sys.argv[1:]
table, database = DeltaTable(path), duckdb.connect()
if engine == "duckdb":
    files = [file.removeprefix("file://") for file in table.file_uris()]
    t = database.read_parquet(files, hive_partitioning=True, union_by_name=True)
else:
    t = table.to_pyarrow_dataset()
    database.register("t", t)
print(json.dumps(database.sql(query).fetchall()), flush=True)
# a thread of a package that is still running can abort the process while Python ends
os._exit(0)
