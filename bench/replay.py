"""Duration of recovery after a crash: kill -9, start, replay.

    FLOODMARK=path/to/floodmark python3 bench/replay.py [--series 200000] [--rounds 50]
"""

import argparse

from floodmark_bench import Server

args = argparse.ArgumentParser()
args.add_argument("--series", type=int, default=200_000)
args.add_argument("--rounds", type=int, default=50)
args = args.parse_args()

server = Server()
report, _ = server.lab("--metrics", 1000, "--series", args.series // 4000, "--writers", 4, "--rounds", args.rounds)
before = server.rss_bytes()
server.kill()
ready_s = server.start()
samples, cpu = report["samples_acknowledged"], server.cpu_seconds()
print("%d samples of %d series: ready after %.2f s, %.2f CPU s, %.2f M samples per CPU second"
      % (samples, args.series, ready_s, cpu, samples / cpu / 1e6))
print("memory before the crash %d MiB, peak in replay %d MiB" % (before >> 20, server.rss_peak_bytes() >> 20))
server.stop()
