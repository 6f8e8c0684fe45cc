"""Effect of one tenant's flood on other tenants.

    FLOODMARK=path/to/floodmark python3 bench/fairness.py [--memory 512] [--duration 60] [--rate 10000 | --interval 30] [--runs 1]
                                                          [--json FILE] SYSTEM PROGRAM [ABUSE ...]

SYSTEM is floodmark or cortex (`bench/systems.py`), PROGRAM its binary. FLOODMARK is the binary of the lab, for both systems.

Three tenants write 10 k known series each at a fixed rate (latency from the intended start). They write first alone, then while a fourth
tenant, or many new tenants, abuse one resource after the other. As a control, "busy loops" keep the processors busy at the lowest priority and
send nothing. Each abuse gets a fresh server in a memory control group of --memory MiB. With `--interval 30`, the three send each series only
every 30 s, spread over the interval, as senders with a long scrape interval do; then a run should take some intervals (`--duration 180`).

A row has the median, over the runs, of the p99 of the slowest of the three tenants, and of each; the ratio of the former to the p99 alone; for
each of the three, their acknowledged samples that are lost, their attempts that were refused (and repeated), and their requests that were
given up after 5 s or had no time to be sent, summed over the runs; the p99 (median of the runs) of small queries that a reader of one of the three sends
meanwhile, and how many of them failed; the peak memory of the group; and whether the kernel killed the server.

Below, from the last run: how the requests of the flood were answered, by status (0: no answer), and what Floodmark says about its refusals, by
reason, and for each tenant by `/api/v1/refusals`, which knows only recent ones. They include reads, some of which are refused in each run, because
the lab asks for too much at once when it reads everything back, and then for less. An abuse of which almost all requests were refused at once does not abuse much.

Cortex has limits for each tenant: twice the samples and the series that each of the three needs. It has no "deletes".

All clients share the machine with the server. The three tenants have a higher priority than the server (needs root), and the flooding
clients the lowest, so that the server is measured and not the clients.
"""

import argparse
import collections
import json
import multiprocessing
import os
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

import remote_write
from control_group import ControlGroup
from floodmark_bench import FLOODMARK, by_label
from known_tenants import TENANTS, figures, of_tenant, p99_ms, write, write_known
from systems import System

parser = argparse.ArgumentParser()
parser.add_argument("--memory", type=int, default=512, help="MiB of the control group; 0: no control group")
parser.add_argument("--duration", type=int, default=60, help="seconds of each abuse")
parser.add_argument("--rate", type=int, default=10_000, help="samples per second of each of the three tenants")
parser.add_argument("--interval", type=float, help="seconds between the samples of a series of the three tenants, instead of --rate")
parser.add_argument("--runs", type=int, default=1)
parser.add_argument("--json", help="file to which each run is appended as a line")
parser.add_argument("system", choices=["floodmark", "cortex"])
parser.add_argument("program")
parser.add_argument("abuses", nargs="*")
args = parser.parse_args()

# Cortex' limits for each tenant
os.environ.update({"AUTH": "true", "INGESTION_RATE": "25000", "INGESTION_BURST": "100000", "SERIES_PER_USER": "50000"})


class Lab:
    """A lab that floods."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def stop(self):
        """Its attempts by status."""
        self.process.terminate()
        try:
            return json.loads(self.process.communicate()[0])["totals"]["by_reason"]
        except (json.JSONDecodeError, KeyError, TypeError):
            return {"no report": 1}


def flood(*flags):
    """An abuse: a lab that writes as tenant d with these flags, until it is stopped."""

    def start(server):
        command = ["chrt", "--idle", "0", FLOODMARK, "lab", "write", "--target", server.write_url, *of_tenant("d"), "--json", "--quiet"]
        command += ["--duration", "%ds" % (args.duration + 6), *map(str, flags)]
        return [Lab(command)]

    return start


class Clients:
    """Processes that send the requests of `request_of(server, client, number)` one after the other, and read all answers."""

    def __init__(self, server, clients, request_of):
        # a process may be stopped at any time, so none holds a lock
        self.statuses = [multiprocessing.RawArray("Q", 600) for _ in range(clients)]
        self.server, self.request_of, self.end = server, request_of, time.monotonic() + args.duration + 6
        self.processes = [multiprocessing.Process(target=self._send, args=(which,)) for which in range(clients)]
        [process.start() for process in self.processes]

    def _send(self, which):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        number = 0
        while time.monotonic() < self.end:
            number += 1
            try:
                with urllib.request.urlopen(self.request_of(self.server, which, number), timeout=60) as answer:
                    while answer.read(1 << 20):
                        pass
                    status = answer.status
            except urllib.error.HTTPError as error:
                status = error.code
                error.read()
                time.sleep(0.05)
            except OSError:
                status = 0
                time.sleep(0.05)
            self.statuses[which][status] += 1

    def stop(self):
        """Their requests by status."""
        for process in self.processes:
            process.terminate()
            process.join()
        counts = map(sum, zip(*self.statuses))
        return {str(status): count for status, count in enumerate(counts) if count}


def repeat(clients, request_of):
    """An abuse: clients that repeat requests."""
    return lambda server: [Clients(server, clients, request_of)]


class Reader:
    """Another tenant's reader: sends a small query ten times a second, and notes how long each answer takes."""

    EVERY_S = 0.1

    def __init__(self, server, seconds):
        self.server, self.seconds, self.results = server, seconds, multiprocessing.SimpleQueue()
        self.process = multiprocessing.Process(target=self._read)
        self.process.start()

    def _read(self):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # like the senders of the three tenants
        taken_s, failed = [], 0
        begin, number = time.monotonic(), 0
        while number * self.EVERY_S < self.seconds:
            due = begin + number * self.EVERY_S
            time.sleep(max(0, due - time.monotonic()))
            number += 1
            path = "/api/v1/query?query=" + quoted("sum(metric_%d)" % (number % 100))
            try:
                urllib.request.urlopen(urllib.request.Request(self.server.read_url + path, headers={"X-Scope-OrgID": "a"}), timeout=5).read()
            except OSError:
                failed += 1
            taken_s.append(time.monotonic() - due)
        self.results.put((sorted(taken_s)[int(0.99 * len(taken_s))] * 1e3, failed))

    def stop(self):
        """The p99 from the time at which a query was due, in milliseconds, and the number of queries that failed."""
        found = self.results.get()
        self.process.join()
        return found


def everything_queried():
    """Queries whose answer needs all samples of the last fifty minutes."""
    end = time.time() + 600
    expression = quoted('sum by (instance) (rate({__name__=~".+"}[5m]))')
    return "/api/v1/query_range?query=%s&start=%d&end=%d&step=1" % (expression, end - 3600, end)


def queried(number):
    """A query that reads the samples of five minutes of 1,000 series at 301 times. Its memory is within the limits."""
    end = time.time()
    terms = ["sum(quantile_over_time(0.9, metric_%d[5m]))" % metric for metric in range(10 * number, 10 * number + 10)]
    return "/api/v1/query_range?query=%s&start=%d&end=%d&step=1" % (quoted(" + ".join(terms)), end - 300, end)


def deleted(number):
    """A delete of one series of tenant d, within a time of its own, so that no two are equal."""
    selector = quoted("metric_%d" % (number % 200))
    return "/api/v1/admin/tsdb/delete_series?match[]=%s&start=%d&end=%d" % (selector, number, number + 1)


def asks(*questions):
    """An abuse: sixteen clients of tenant d that send these queries in turn."""

    def request_of(server, which, number):
        path = questions[(which + number) % len(questions)]
        return urllib.request.Request(server.read_url + path, headers={"X-Scope-OrgID": "d"})

    return repeat(16, request_of)


def deletes(server):
    """An abuse: four clients that delete samples of tenant d."""
    of_d = {"X-Scope-OrgID": "d"}
    request_of = lambda server, which, number: urllib.request.Request(server.base + deleted(4 * number + which), data=b"", headers=of_d)
    return repeat(4, request_of)(server)


def samples(tenant_of, at_of):
    """An abuse: four clients that write requests of a thousand series; tenant and time depend on the number of the request."""
    some_ms = int(time.time() * 1000)

    def body_of(which):
        return b"".join(remote_write.series({"__name__": "m_%d" % i, "client": str(which)}, some_ms) for i in range(1000))

    # Only the time differs between the requests of a client. It is replaced, because encoding takes longer than the server needs.
    bodies = [body_of(which) for which in range(4)]

    def request_of(server, which, number):
        body = bodies[which].replace(remote_write.varint(some_ms), remote_write.varint(int(at_of(number) * 1000)))
        headers = {**remote_write.HEADERS, "X-Scope-OrgID": tenant_of(which, number)}
        return urllib.request.Request(server.write_url, data=remote_write.snappy(body), headers=headers)

    return repeat(4, request_of)


def quoted(expression):
    return urllib.parse.quote(expression)


class Loop:
    def __init__(self):
        self.process = subprocess.Popen(["chrt", "--idle", "0", "sh", "-c", "while :; do :; done"])

    def stop(self):
        self.process.terminate()
        self.process.wait()
        return {}


def busy_loops(server):
    """No abuse: loops that only take processor time that nobody wants. Shows what a busy machine alone does to the p99."""
    return [Loop() for _ in range(os.cpu_count())]


LISTS = ["/api/v1/series?match[]=metric_%d", "/api/v1/labels?match[]=metric_%d", "/api/v1/label/instance/values?match[]=metric_%d"]
EVERYTHING = quoted('{__name__=~".+"}')
ABUSES = {
    "nothing": lambda server: [],
    "busy loops": busy_loops,
    "new series": flood("--metrics", 1000, "--series", 125, "--writers", 4, "--interval", "1s", "--series-churn", "1s"),
    "samples": flood("--metrics", 500, "--series", 50, "--writers", 16),
    "large requests": flood("--metrics", 500, "--series", 400, "--writers", 4, "--batch", 100_000),
    "tiny requests": flood("--metrics", 100, "--series", 10, "--writers", 16, "--batch", 1),
    "new tenants": samples(lambda which, number: "new-%d-%d" % (which, number), lambda _: time.time()),
    "late samples": samples(lambda *_: "d", lambda number: time.time() - 60 - 7 * number % 80_000),
    "queries that fit": lambda server: asks(*map(queried, range(20)))(server),
    "queries too large": lambda server: asks(everything_queried())(server),
    "label lists": asks("/api/v1/series?match[]=" + EVERYTHING, "/api/v1/labels", "/api/v1/label/instance/values"),
    "label lists that fit": asks(*(path % number for number in range(20) for path in LISTS)),
    "exports": asks("/api/v1/export?match[]=" + EVERYTHING),
    "exports that fit": asks(*("/api/v1/export?match[]=" + quoted('{__name__=~"metric_%d."}' % number) for number in range(1, 20))),
    "deletes": deletes,
}


# Cortex' API for deletes is gone
ALL = [name for name in ABUSES if (args.system, name) != ("cortex", "deletes")]


def refusals(server):
    """Floodmark's refusals by reason, and the recent ones of the tenants by reason."""
    if args.system != "floodmark":
        return {}, {}
    of_tenants = {}
    for tenant in [*TENANTS, "d"]:
        request = urllib.request.Request(server.base + "/api/v1/refusals", headers={"X-Scope-OrgID": tenant})
        try:
            groups = json.load(urllib.request.urlopen(request, timeout=30))["data"]
        except urllib.error.HTTPError as error:
            of_tenants[tenant] = {"status": error.code}
            continue
        counts = collections.Counter()
        for group in groups:
            counts[group["reason"]] += group["count"]
        if counts:
            of_tenants[tenant] = dict(counts)
    return by_label(server.base, "floodmark_refusals_total"), of_tenants


def measure(name):
    group = ControlGroup(args.memory)
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
        server = System(args.system, args.program, data, prepare=group.enter)
        write_known(server, 3, args.rate)
        # data for the queries of tenant d
        write(server, "d", "--metrics", 200, "--series", 100, "--writers", 1, "--rounds", 20)
        clients = ABUSES[name](server)
        time.sleep(1)
        reader = Reader(server, args.duration)
        reports = write_known(server, args.duration, args.rate, args.interval)
        query_p99_ms, queries_failed = reader.stop()
        alive = server.process.poll() is None and group.kills() == 0
        answered = collections.Counter()
        for client in clients:
            answered.update(client.stop())
        by_reason, by_tenant = refusals(server) if alive else ({}, {})
        run = {
            "system": args.system,
            "abuse": name,
            "interval_s": args.interval,
            "p99_ms": p99_ms(reports),
            "query_p99_ms": query_p99_ms,
            "queries_failed": queries_failed,
            "tenants": figures(reports),
            "peak_mib": group.peak_mib() or server.rss_peak_bytes() >> 20,
            "alive": alive,
            "answered": dict(answered),
            "refused": by_reason,
            "refused_by_tenant": by_tenant,
        }
        server.kill()
    if args.json:
        with open(args.json, "a") as file:
            file.write(json.dumps(run) + "\n")
    return run


def median(values):
    """The median. `None` means that the server was killed, and counts as larger than any number."""
    values = sorted(values, key=lambda value: float("inf") if value is None else value)
    return values[len(values) // 2]


def shown(value):
    return "-" if value is None else "%.2f" % value


def counts(values):
    return ", ".join("%s %d" % pair for pair in sorted(values.items())) or "none"


def sums(runs, figure):
    """The sums of the three tenants, such as 0/0/0."""
    of_one = lambda tenant: [run["tenants"][figure][tenant] for run in runs]
    return "/".join("?" if None in of_one(tenant) else str(sum(of_one(tenant))) for tenant in TENANTS)


alone_ms = None
line = "%-20s %9s %9s %9s %9s %7s %12s %12s %12s %9s %9s %9s %7s"
print(line % ("abuse", "p99 ms", *TENANTS, "ratio", "lost", "refused", "unsent", "query p99", "failed", "peak MiB", "killed"))
for name in args.abuses or ALL:
    runs = [measure(name) for _ in range(args.runs)]
    worst_ms = median([run["p99_ms"] for run in runs])
    alone_ms = alone_ms or worst_ms
    of_each = [shown(median([run["tenants"]["p99_ms"][tenant] for run in runs])) for tenant in TENANTS]
    ratio = None if worst_ms is None or alone_ms is None else worst_ms / alone_ms
    print(line % (
        name, shown(worst_ms), *of_each, shown(ratio), *(sums(runs, figure) for figure in ["lost", "refused", "unsent"]),
        shown(median([run["query_p99_ms"] for run in runs])), sum(run["queries_failed"] for run in runs),
        max(run["peak_mib"] for run in runs), sum(not run["alive"] for run in runs) or "no"))
    last = runs[-1]
    print("    flood answered: %s; refusals: %s" % (counts(last["answered"]), counts(last["refused"])), end="")
    print("".join("; of %s: %s" % (tenant, counts(reasons)) for tenant, reasons in last["refused_by_tenant"].items()), flush=True)
