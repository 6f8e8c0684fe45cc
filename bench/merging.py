"""Checks whether merging keeps up with the fastest possible writing.

    FLOODMARK=path/to/floodmark python3 bench/merging.py [--series 200000] [--duration 90] [--seal-after 2s] [--rate 0]

Writes as fast as possible (or at `--rate`) and seals often, so that a minute writes as many files as half a day usually does. Prints for each step the
samples written, sealed and merged, the number of merges waiting, and the CPU time of the server's threads. Then prints how long the
remaining merges take without writes.
"""

import argparse
import json
import threading
import time
import urllib.request

from floodmark_bench import Server

args = argparse.ArgumentParser()
args.add_argument("--series", type=int, default=200_000)
args.add_argument("--duration", type=int, default=90)
args.add_argument("--seal-after", default="2s")
args.add_argument("--rate", type=int, default=0)
args.add_argument("--memory", default="4GiB")
args.add_argument("--step", type=int, default=10)
args = args.parse_args()

server = Server("--memory", args.memory, "--seal-after", args.seal_after)
LOAD = ["--metrics", 500, "--series", args.series // 2000, "--writers", 4, "--interval", "15s", "--start", "-12h"]
PACE = ["--duration", "%ds" % args.duration] + (["--rate", args.rate] if args.rate else [])
NAMES = {
    "written": "floodmark_write_samples_total", "sealed": "floodmark_seal_samples_total", "merged": "floodmark_compact_samples_total",
    "merged_bytes": "floodmark_compact_bytes_total", "sealed_bytes": "floodmark_seal_bytes_total", "waiting": "floodmark_compact_jobs_waiting",
    "head": "floodmark_head_bytes", "seals": "floodmark_seal_rounds_total",
}


def look():
    text = urllib.request.urlopen(server.url + "/metrics").read().decode()
    metrics = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {key: float(metrics.get(name, 0)) for key, name in NAMES.items()}, server.threads(), time.monotonic()


def show(before, after):
    (then, threads_then, began), (now, threads_now, ended) = before, after
    ran = {name: times[0] - threads_then.get(name, (0, 0))[0] for name, times in threads_now.items()}
    owners = sum(s for name, s in ran.items() if name.startswith("partition"))
    per_s = lambda key: (now[key] - then[key]) / (ended - began) / 1e6
    upkeep = ran.get("upkeep", 0.0)
    print("%5.1f s  written %5.2f  sealed %5.2f  merged %5.2f M/s  waiting %3d merges  head %4d MiB  CPU s: owners %.2f sealer %.2f upkeep %.2f all %.2f  %s" % (
        ended - began, per_s("written"), per_s("sealed"), per_s("merged"), now["waiting"], int(now["head"]) >> 20, owners,
        ran.get("sealer", 0.0), upkeep, sum(ran.values()),
        "merged %.1f M/CPU s" % ((now["merged"] - then["merged"]) / upkeep / 1e6) if upkeep > 0.05 else ""), flush=True)


load = threading.Thread(target=lambda: print(json.dumps({k: v for k, v in server.lab(*LOAD, *PACE)[0].items() if k in ("samples_per_s", "latency")})))
first = last = look()
load.start()
while load.is_alive():
    load.join(args.step)
    now = look()
    show(last, now)
    last = now
print("whole run:")
show(first, last)
began = time.monotonic()
urllib.request.urlopen(urllib.request.Request(server.url + "/api/v1/admin/flush", data=b"", method="POST"), timeout=600).read()
rest = look()
urllib.request.urlopen(urllib.request.Request(server.url + "/api/v1/admin/compact", data=b"", method="POST"), timeout=3600).read()
now = look()
print("the rest, without writes:")
show(last, now)
print("merged bytes for each sealed: %.2f; samples: %.2f" % (now[0]["merged_bytes"] / now[0]["sealed_bytes"], now[0]["merged"] / now[0]["sealed"]))
server.stop()
