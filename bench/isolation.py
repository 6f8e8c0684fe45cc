"""Effect of a flood of new series on the latency of known series.

    FLOODMARK=path/to/floodmark python3 bench/isolation.py [--rate 100000] [--duration 20]

Writes 50 k known series at a fixed rate (latency from the intended start), first alone, then while four other writers
create new series as fast as they get answers. Prints both p99s, their ratio, and the number of series created.
"""

import argparse
import threading

from floodmark_bench import Server

args = argparse.ArgumentParser()
args.add_argument("--rate", type=int, default=100_000)
args.add_argument("--duration", type=int, default=20)
args = args.parse_args()

KNOWN = ["--metrics", 250, "--series", 50, "--writers", 4, "--seed", 1, "--rate", args.rate]
# a round has 500 k series, and every round has new series
NEW = ["--metrics", 1000, "--series", 125, "--writers", 4, "--seed", 2, "--first-writer", 100,
       "--interval", "1s", "--series-churn", "1s"]

server = Server()
server.lab(*KNOWN, "--duration", "3s")
quiet, _ = server.lab(*KNOWN, "--duration", "%ds" % args.duration)

flood = {}
creators = threading.Thread(target=lambda: flood.update(zip(("report", "cpu"), server.lab(*NEW, "--duration", "%ds" % (args.duration + 4)))))
creators.start()
busy, _ = server.lab(*KNOWN, "--duration", "%ds" % args.duration)
creators.join()

ms = lambda report, q: report["latency"][q] * 1e3
created = flood["report"]["series_distinct"]
print("known series alone:    p50 %7.2f ms  p99 %7.2f ms" % (ms(quiet, "p50_s"), ms(quiet, "p99_s")))
print("while series are new:  p50 %7.2f ms  p99 %7.2f ms   ratio of p99s %.2f" % (ms(busy, "p50_s"), ms(busy, "p99_s"), ms(busy, "p99_s") / ms(quiet, "p99_s")))
print("new series: %d, %.0f a second, %.0f for each CPU second of the server (known samples included)"
      % (created, created / flood["report"]["wall_s"], created / flood["cpu"]))
print("memory: %d MiB" % (server.rss_bytes() >> 20))
server.stop()
