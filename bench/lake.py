"""Size of samples at rest, and cost of sealing and compaction, with a fresh server for each value model.

    FLOODMARK=path/to/floodmark python3 bench/lake.py [--metrics 500] [--series 40] [--rounds 500]

Writes in `--parts` parts with a flush after each, then compacts. Bytes are those of live files and the Delta log,
including labels. Files that compaction has replaced wait for vacuum and are not counted. The journal is empty after a flush.
"""

import argparse
import json
import os
import subprocess

from floodmark_bench import FLOODMARK, Server

args = argparse.ArgumentParser()
args.add_argument("--metrics", type=int, default=500)
args.add_argument("--series", type=int, default=40)
args.add_argument("--rounds", type=int, default=500)
args.add_argument("--parts", type=int, default=4)
args.add_argument("--models", default="mix,counter,walk,constant")
args.add_argument("--memory", default="2GiB")
args = args.parse_args()


def log_bytes(server):
    sizes = 0
    for folder, _, files in os.walk(server.dir + "/data/tables"):
        if "_delta_log" in folder:
            sizes += sum(os.path.getsize(os.path.join(folder, f)) for f in files)
    return sizes


print("| values | samples | sealed B/sample | compacted B/sample | seal M/CPU s | compact M/CPU s | peak RSS MiB | ready again s |")
print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
for model in args.models.split(","):
    server = Server("--memory", args.memory)
    samples = sealed = 0
    seal_s = 0.0
    rounds = args.rounds // args.parts
    for part in range(args.parts):
        report, _ = server.lab(
            "--values", model, "--writers", 1, "--metrics", args.metrics, "--series", args.series,
            "--rounds", rounds, "--interval", "15s", "--start", "-%ds" % ((args.parts - part) * rounds * 15),
        )
        before = server.cpu_seconds()
        flushed = server.post("flush")
        seal_s += server.cpu_seconds() - before
        samples += flushed["samples"]
        sealed += flushed["bytes"]
    sealed += log_bytes(server)
    before = server.cpu_seconds()
    server.post("compact")
    compact_s = server.cpu_seconds() - before
    peak = server.rss_peak_bytes()
    server.kill()
    ready_s = server.start()
    inspect = [FLOODMARK, "inspect", "table", "--data-dir", server.dir + "/data", "--json"]
    files = json.loads(subprocess.run(inspect, stdout=subprocess.PIPE, check=True).stdout)["files"]
    live = sum(f["bytes"] for f in files) + log_bytes(server)
    print(
        "| %s | %d | %.3f | %.3f | %.1f | %.1f | %d | %.2f |"
        % (model, samples, sealed / samples, live / samples, samples / seal_s / 1e6,
           samples / max(compact_s, 0.01) / 1e6, peak >> 20, ready_s),
        flush=True,
    )
    server.stop()
