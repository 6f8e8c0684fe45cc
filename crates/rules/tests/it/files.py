"""Applies the real carbon's rule files to names, for differential tests.

Reads one line of JSON from standard input, with the text of each file and the names:

    {"schemas": "…", "aggregation": "…", "rewrites": "…", "list": "…", "names": ["a.b", …]}

Answers one line of JSON, with one object for each name:

    {"archives": [[60, 1440]], "x_files_factor": 0.5, "method": "average", "pre": "a.b", "post": "a.b", "is_listed": false}
"""

import json
import os
import sys
import tempfile

import whisper
from carbon import state
from carbon.conf import settings

settings["CONF_DIR"] = "."  # carbon's modules join paths when they are imported


class Database:
    """What carbon asks the real database for while it reads its files."""

    aggregationMethods = whisper.aggregationMethods
    validateArchiveList = staticmethod(whisper.validateArchiveList)


state.database = Database

from carbon import regexlist, rewrite, storage

request = json.loads(sys.stdin.readline())
with tempfile.TemporaryDirectory() as folder:

    def file(kind):
        path = os.path.join(folder, kind)
        with open(path, "w") as written:
            written.write(request[kind])
        return path

    storage.STORAGE_SCHEMAS_CONFIG = file("schemas")
    storage.STORAGE_AGGREGATION_CONFIG = file("aggregation")
    schemas, aggregations = storage.loadStorageSchemas(), storage.loadAggregationSchemas()
    rewrite.RewriteRuleManager.rules_file = file("rewrites")
    rewrite.RewriteRuleManager.read_rules()
    names = regexlist.RegexList()
    names.list_file = file("list")
    names.read_list()


def rewritten(name, ruleset):
    for rule in rewrite.RewriteRuleManager.rules(ruleset):
        name = rule.apply(name)
    return name


def decisions(name):
    archives = next(schema.archives for schema in schemas if schema.matches(name))
    factor, method = next(schema.archives for schema in aggregations if schema.matches(name))
    return {
        "archives": sorted(archive.getTuple() for archive in archives),
        # whisper.create has these defaults
        "x_files_factor": 0.5 if factor is None else factor,
        "method": method or "average",
        "pre": rewritten(name, rewrite.PRE),
        "post": rewritten(name, rewrite.POST),
        "is_listed": name in names,
    }


print(json.dumps([decisions(name) for name in request["names"]]), flush=True)
