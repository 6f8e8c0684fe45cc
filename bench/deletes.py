"""Deleting a tenth of a tenant's series while other tenants write: durations, what is left, and the effect on the other tenants.

    FLOODMARK=path/to/floodmark python3 bench/deletes.py [--memory 512] [--metrics 2000] [--series 100] [--rounds 100]
        [--rate 10000] [--turn 20] SYSTEM PROGRAM [READER ...]

SYSTEM is floodmark, victoriametrics or prometheus (`bench/systems.py`), PROGRAM its binary. READERs are engines of `bench/readers.py`,
which count the samples in Floodmark's table in the end; the script needs their packages then.

A tenant has --metrics x --series series with --rounds samples each. Three other tenants write --rate samples/s each to 10 k known series,
in a memory control group of --memory MiB, for --turn seconds without a delete, and for twice as long while
- a dry run counts (Floodmark only), and one request deletes every metric whose number ends in 7;
- all samples of some deleted metrics and of some others are counted through PromQL;
- the server is killed with SIGKILL as soon as it has answered the delete, and they are counted again;
- the files are rewritten (Floodmark: compaction; VictoriaMetrics: a forced merge; Prometheus: clean_tombstones), and they are counted
  again.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from control_group import ControlGroup
from known_tenants import lost, p99_ms, write, write_known
from systems import System

parser = argparse.ArgumentParser()
parser.add_argument("--memory", type=int, default=512, help="MiB of the control group; 0: none")
parser.add_argument("--metrics", type=int, default=2000)
parser.add_argument("--series", type=int, default=100, help="series per metric")
parser.add_argument("--rounds", type=int, default=100, help="samples per series")
parser.add_argument("--rate", type=int, default=10_000, help="samples/s of each of the three other tenants")
parser.add_argument("--turn", type=int, default=20, help="seconds in which they write without a delete")
parser.add_argument("system", choices=["floodmark", "victoriametrics", "prometheus"])
parser.add_argument("program")
parser.add_argument("readers", nargs="*")
args = parser.parse_args()

DELETED = '{__name__=~"metric_[0-9]*7"}'
REWRITE = {
    "floodmark": ["/api/v1/admin/flush", "/api/v1/admin/compact"],
    "victoriametrics": ["/internal/force_merge"],
    "prometheus": ["/api/v1/admin/tsdb/clean_tombstones"],
}


def request(server, path, method="GET", **params):
    """Seconds and body of an answer, asked as the tenant with the deleted series."""
    body = urllib.parse.urlencode(params)
    url = server.base + path + ("?" + body if body else "")
    began = time.monotonic()
    asked = urllib.request.Request(url, data=b"" if method == "POST" else None, headers={"X-Scope-OrgID": "d"}, method=method)
    answer = urllib.request.urlopen(asked, timeout=600).read()
    return time.monotonic() - began, answer


def count(server, numbers):
    """Samples of these metrics."""
    def one(number):
        params = {"nocache": "1"} if args.system == "victoriametrics" else {}
        query = "sum(count_over_time(metric_%d[12h]))" % number
        found = json.loads(request(server, "/api/v1/query", query=query, **params)[1])["data"]["result"]
        return int(found[0]["value"][1]) if found else 0

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return sum(pool.map(one, numbers))


def check(server, when, times=1):
    """Counts the samples of fifty metrics that match the delete, and of fifty others, which must have all samples of `times` writes."""
    deleted, kept = count(server, SOME_DELETED), count(server, SOME_KEPT)
    expected = times * len(SOME_KEPT) * args.series * args.rounds
    print("%s: %d samples of deleted metrics, %d of %d of others" % (when, deleted, kept, expected), flush=True)


def disk_mib():
    used = subprocess.run(["du", "-sm", data], stdout=subprocess.PIPE, check=True)
    return int(used.stdout.split()[0])


class Known:
    """The three other tenants, which write in the background."""

    def __init__(self, server, seconds):
        self.reports, self.senders = {}, []
        write_all = lambda: self.reports.update(write_known(server, seconds, args.rate, started=self.senders.append))
        self.thread = threading.Thread(target=write_all)
        self.thread.start()

    def show(self, what):
        self.thread.join()
        ms = p99_ms(self.reports)
        print("three other tenants, %s: p99 %s ms, lost %s" % (what, ms and "%.1f" % ms, lost(self.reports)), flush=True)

    def stop(self):
        """Ends them without a report."""
        for sender in self.senders:
            sender.kill()
        self.thread.join()


numbers = range(args.metrics)
step = max(1, args.metrics // 500)
SOME_DELETED = [n for n in numbers if n % 10 == 7][::step]
SOME_KEPT = [n for n in numbers if n % 10 == 3][::step]
group = ControlGroup(args.memory)
with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
    server = System(args.system, args.program, data, prepare=group.enter)
    shape = ["--metrics", args.metrics, "--series", args.series, "--rounds", args.rounds, "--writers", 1, "--interval", "15s"]
    report = write(server, "d", *shape, "--start", "-%ds" % (15 * args.rounds + 60), "--give-up-after", "10m")
    print("stored %d samples of %d series" % (report["samples_acknowledged"], args.metrics * args.series), flush=True)
    write_known(server, min(3, args.turn), args.rate)
    check(server, "before")
    Known(server, args.turn).show("without a delete")

    known = Known(server, 2 * args.turn)
    time.sleep(1)
    params = {"match[]": DELETED}
    path = "/api/v1/admin/tsdb/delete_series"
    if args.system == "floodmark":
        took_s, answer = request(server, path, "POST", **params, dry_run="true")
        print("dry run: %.2f s: %s" % (took_s, json.loads(answer)["data"]), flush=True)
    took_s, _ = request(server, path, "POST", **params)
    print("delete: %.2f s" % took_s, flush=True)
    check(server, "at once")
    for path in REWRITE[args.system]:
        print("%s: %.1f s" % (path, request(server, path, "POST")[0]), flush=True)
    check(server, "rewritten")
    known.show("while deleted and rewritten")
    print("on disk %d MiB" % disk_mib(), flush=True)

    # once more, with a kill at once; another seed makes other series of the same metrics
    write(server, "d", *shape, "--start", "-%ds" % (15 * args.rounds + 60), "--give-up-after", "10m", "--seed", 2)
    check(server, "written again", 2)
    known = Known(server, max(1, args.turn // 2))
    request(server, "/api/v1/admin/tsdb/delete_series", "POST", **params)
    server.kill()
    known.stop()
    print("killed; ready again after %.2f s" % server.start(), flush=True)
    check(server, "after SIGKILL", 2)
    for path in REWRITE[args.system]:
        request(server, path, "POST")
    check(server, "rewritten after SIGKILL", 2)
    print("peak memory %d MiB, killed by the kernel %d" % (group.peak_mib(), group.kills()), flush=True)
    if args.readers:
        server.stop()
        for engine in args.readers:
            reader = os.path.join(os.path.dirname(os.path.abspath(__file__)), "readers.py")
            table = os.path.join(data, "tables", "d", "metrics")
            print(engine, subprocess.run([sys.executable, reader, engine, table], stdout=subprocess.PIPE, check=True).stdout.decode().strip())
    server.kill()
