"""Fills a data directory for bench/cold.py, until all samples are in files. Prints bytes per sample, and the cost.

    FLOODMARK=path/to/floodmark python3 bench/fill.py SYSTEM PROGRAM DATA [--metrics 2000] [--targets 10] [--rounds 500]
                                                      [--interval 15] [-- SERVER FLAGS]

SYSTEM and PROGRAM: see bench/systems.py. DATA must be empty. The newest samples have the current time. Afterwards Floodmark flushes and
compacts; VictoriaMetrics is stopped, started again and told to merge; Prometheus makes a snapshot (in DATA/snapshots); Cortex ships its
blocks (to DATA/bucket) when it stops. The last line of output is the command line for bench/cold.py.
"""

import argparse
import json
import os
import subprocess
import time
import urllib.request

from floodmark_bench import FLOODMARK, lab_write
from systems import System, arguments

parser = argparse.ArgumentParser()
parser.add_argument("--metrics", type=int, default=2000)
parser.add_argument("--targets", type=int, default=10, help="series of each metric")
parser.add_argument("--rounds", type=int, default=500, help="samples of each series")
parser.add_argument("--interval", type=int, default=15, help="seconds between two samples of a series")
parser.add_argument("--values", default="mix", help="see floodmark lab write --help")
parser.add_argument("--step", type=int, default=60, help="step of the queries of bench/cold.py, in seconds")
args, flags = arguments(parser, "data")
samples = args.metrics * args.targets * args.rounds


def size(folder):
    """Size of all files below a folder, in bytes."""
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)


def at_rest(what, size_bytes):
    print("%s: %.3f bytes a sample, %s" % (args.system, size_bytes / samples, what), flush=True)


def cost(server, what, work):
    """Does `work` and prints its cost."""
    before = server.cpu_seconds()
    done = work()
    cpu_s = server.cpu_seconds() - before
    print("%s: %s: %.1f M samples for each CPU second; peak RSS so far %d MiB" % (
        args.system, what, samples / max(cpu_s, 0.01) / 1e6, server.rss_peak_bytes() >> 20), flush=True)
    return done


def floodmark(server):
    flushed = cost(server, "flush", lambda: json.loads(server.post("/api/v1/admin/flush"))["data"])
    assert flushed["samples"] == samples, flushed
    log = lambda: size_of_logs(os.path.join(args.data, "tables"))
    at_rest("sealed", flushed["bytes"] + log())
    cost(server, "compaction", lambda: server.post("/api/v1/admin/compact"))
    command = [FLOODMARK, "inspect", "table", "--data-dir", args.data, "--json"]
    live = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["files"]
    at_rest("compacted", sum(file["bytes"] for file in live) + log())
    server.stop()
    print("%s: ready again after %.2f s" % (args.system, server.start()))
    return args.data


def size_of_logs(tables):
    """Size of the Delta logs, in bytes."""
    return sum(size(os.path.join(at, name)) for at, names, _ in os.walk(tables) for name in names if name == "_delta_log")


def victoriametrics(server):
    server.stop()
    at_rest("after a stop", size(args.data))
    server.start()
    server.post("/internal/force_merge")
    merging = 1
    while merging:
        time.sleep(1)
        metrics = urllib.request.urlopen(server.base + "/metrics").read().decode().splitlines()
        merging = sum(float(line.split()[-1]) for line in metrics if line.startswith(("vm_active_force_merges", "vm_active_merges")))
    server.stop()
    at_rest("after a forced merge", size(args.data))
    server.start()
    return args.data


def prometheus(server):
    made = json.loads(server.post("/api/v1/admin/tsdb/snapshot"))["data"]["name"]
    snapshot = os.path.join(args.data, "snapshots", made)
    at_rest("in a snapshot", size(snapshot))
    return snapshot


def cortex(server):
    server.stop()
    at_rest("in shipped blocks", size(os.path.join(args.data, "bucket")))
    server.start()
    return args.data


server = System(args.system, args.program, args.data, *flags)
try:
    end = int(time.time()) // args.step * args.step
    begin = end - args.rounds * args.interval
    report = lab_write(
        server.write_url, "--metrics", args.metrics, "--series", args.targets, "--writers", 1, "--connections", 4,
        "--interval", "%ds" % args.interval, "--start", begin, "--rounds", args.rounds, "--values", args.values,
    )
    assert report["samples_acknowledged"] == samples, report["said"]
    print("%s: %d samples written, peak RSS %d MiB" % (args.system, samples, server.rss_peak_bytes() >> 20), flush=True)
    rests = {"floodmark": floodmark, "victoriametrics": victoriametrics, "prometheus": prometheus, "cortex": cortex}
    folder = rests[args.system](server)
    print("then: bench/cold.py %s %s %s QUERIES %d %d %d" % (
        args.system, args.program, folder, begin + 5 * args.step, end, args.step))
finally:
    server.stop()
