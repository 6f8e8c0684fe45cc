"""What floods of series, tenants and returning senders do to a server, and to three tenants with known series.

    FLOODMARK=path/to/floodmark python3 bench/floods.py [--memory 512] [--part 1] [--rate 10000] [--longest 3600] [--json FILE] SYSTEM PROGRAM [FLOOD ...]

SYSTEM is floodmark, victoriametrics, prometheus or cortex (`bench/systems.py`), PROGRAM its binary; FLOODMARK is the binary of the lab.
Each flood gets a fresh server in a memory control group of --memory MiB. Three tenants write 10 k known series each at --rate samples/s
from before the flood until after its usual end, but for two minutes at most. --part divides the size of every flood, to try the script.

A flood ends when it is stored, when the server has ended, or after --longest seconds; in the last two cases, the row says what was
acknowledged until then.

The columns: seconds until the flood ended; its acknowledged samples; acknowledged samples, of the flood and of the three tenants, that
cannot be read (`None`: not known, because the server has ended or did not answer); requests of the flood that were refused; those that were
given up or not sent; requests of the three tenants that were refused; the p99 of the worst of the three; peak memory of the group; and how
the flood ended: `stored`; `killed` or `exited`, the server, by a signal (of the kernel, if memory was short) or by itself; or `too long`.

All senders share the machine with the server. The three tenants have a higher priority than the server (needs root), and the flooding
senders the lowest, so that the server is measured and not the senders.
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import signal
import tempfile
import threading
import time
import urllib.parse

import remote_write
from control_group import ControlGroup
from known_tenants import lost, p99_ms, write, write_known
from systems import NAMES, System

parser = argparse.ArgumentParser()
parser.add_argument("--memory", type=int, default=512, help="MiB of the control group; 0: none")
parser.add_argument("--part", type=int, default=1, help="divisor of the size of every flood")
parser.add_argument("--rate", type=int, default=10_000, help="samples/s of each of the three tenants")
parser.add_argument("--longest", type=int, default=3600, help="seconds after which a flood is stopped")
parser.add_argument("--json", help="file to which each result is appended as a line")
parser.add_argument("system", choices=NAMES)
parser.add_argument("program")
parser.add_argument("floods", nargs="*")
args = parser.parse_args()

# Cortex' limits for each tenant
os.environ.update({"AUTH": "true", "INGESTION_RATE": "25000", "INGESTION_BURST": "100000", "SERIES_PER_USER": "50000"})

PATIENT = ["--give-up-after", "15m", "--duration", "%ds" % args.longest, "--verify"]

# After they were asked to end, senders have this long to read back what was acknowledged. From a server that has ended, they cannot, and
# try for half a minute.
READ_BACK_S = {"too long": 600, "killed": 45, "exited": 45}


class Watch(threading.Thread):
    """Ends the senders when the server has ended, or after `args.longest` seconds. `over` is how the flood ended, once it has."""

    def __init__(self, server, group):
        super().__init__(daemon=True)
        self.server, self.group = server, group
        self.over, self.ended_s, self.is_stored = None, None, False
        self.lock, self.senders = threading.Lock(), set()
        self.began, self.finished = time.monotonic(), threading.Event()

    def passed_s(self):
        return time.monotonic() - self.began

    def run(self):
        while not self.finished.wait(0.1):
            over = self._over()
            if over:
                self._end(over)
                return

    def _over(self):
        status = self.server.process.poll()
        if status is not None:
            return "exited" if status >= 0 else "killed"
        # the kernel may have killed a child of the server
        if self.group.kills() > 0:
            return "killed"
        return "too long" if not self.is_stored and self.passed_s() >= args.longest else None

    def _end(self, over):
        with self.lock:
            self.over, self.ended_s = over, self.passed_s()
            senders = list(self.senders)
        print("%s after %.1f s: the senders are stopped" % (over, self.ended_s), flush=True)
        for sender in senders:
            stop(sender, signal.SIGTERM)
        if not self.finished.wait(READ_BACK_S[over]):
            for sender in senders:
                stop(sender, signal.SIGKILL)

    def started(self, sender):
        """Must be called with each process that sends."""
        with self.lock:
            self.senders.add(sender)
            is_late = self.over is not None
        if is_late:
            stop(sender, signal.SIGKILL)

    def stored(self):
        """The flood is stored. The three tenants may still write, so the server is watched until `finish`. Returns the flood's seconds."""
        self.is_stored = True
        return self.passed_s()

    def finish(self):
        """All senders have ended. Returns how the flood ended."""
        self.finished.set()
        self.join()
        return self.over or self._over() or "stored"


def stop(process, number):
    if process.poll() is None:
        process.send_signal(number)


class Stored:
    """What a flood has stored so far."""

    def __init__(self, watch):
        self.watch = watch
        self.acknowledged = self.lost = self.refused = self.unsent = 0
        self.lock = threading.Lock()

    def add(self, report):
        """Adds a report of the lab."""
        with self.lock:
            self.acknowledged += report["samples_acknowledged"]
            self._add_lost(report["verify"] and report["verify"]["lost"])
            self.refused += report["attempts"] - report["requests"]
            self.unsent += report["given_up"] + report["rejected"] + report["unsent"]
        if report["partial"]:
            print("the lab was stopped before its end, events: %s" % report["events"], flush=True)

    def add_none(self):
        """A sender has left no report."""
        with self.lock:
            self._add_lost(None)

    def _add_lost(self, lost):
        # once it is not known of one sender, it is not known of all
        self.lost = None if lost is None or self.lost is None else self.lost + lost


def lab(server, stored, tenant, *flags):
    if stored.watch.over:
        return
    try:
        started = stored.watch.started
        stored.add(write(server, tenant, *flags, *PATIENT, priority=["nice", "-n", "19"], started=started))
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        stored.add_none()
        print("no report of tenant %s: %r" % (tenant, error), flush=True)


def one_tenant(server, stored):
    """20 M distinct series of one tenant: 200 k, replaced a hundred times."""
    shape = ["--metrics", 1000, "--series", 50, "--writers", 4, "--interval", "1s", "--series-churn", "1s"]
    lab(server, stored, "d", *shape, "--rounds", 100 // args.part)


def thousand_tenants(server, stored):
    """20 M distinct series of a thousand tenants, eight of which send at a time."""
    shape = ["--metrics", 100, "--series", 200, "--writers", 1, "--rounds", 1, "--batch", 10_000]
    with concurrent.futures.ThreadPoolExecutor(8) as senders:
        list(senders.map(lambda number: lab(server, stored, "d-%d" % number, *shape), range(1000 // args.part)))


def relabelled(server, stored):
    """1 M known series that get another label value at once."""
    shape = ["--metrics", 1000, "--series", 250 // args.part, "--writers", 4, "--interval", "15s", "--series-churn", "15s"]
    lab(server, stored, "d", *shape, "--rounds", 2)


def new_tenants(server, stored):
    """5,000 tenants at once, with a series each, on 64 connections. Nobody repeats a refused request."""
    url = urllib.parse.urlparse(server.write_url)

    def send(numbers):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        connection = http.client.HTTPConnection(url.netloc, timeout=60)
        for number in numbers:
            if stored.watch.over:
                return
            body = remote_write.snappy(remote_write.series({"__name__": "flood"}, int(time.time() * 1000), number))
            connection.request("POST", url.path, body, {**remote_write.HEADERS, "X-Scope-OrgID": "new-%d" % number})
            answer = connection.getresponse()
            answer.read()
            with stored.lock:
                stored.acknowledged += answer.status < 300
                stored.refused += answer.status >= 300

    total = 5000 // args.part
    with concurrent.futures.ThreadPoolExecutor(64) as senders:
        list(senders.map(send, [range(first, total, 64) for first in range(64)]))


def returning_senders(server, stored):
    """1,000 senders of 100 series each that were cut off for five minutes: each sends 20 scrapes as fast as it can."""
    shape = ["--metrics", 10, "--series", 10, "--writers", 1000 // args.part, "--interval", "15s"]
    lab(server, stored, "d", *shape, "--rounds", 1, "--start", "-5m")
    lab(server, stored, "d", *shape, "--rounds", 20, "--start", "-285s")


FLOODS = {
    "one tenant": (one_tenant, 120),
    "1,000 tenants": (thousand_tenants, 120),
    "relabelled": (relabelled, 30),
    "new tenants": (new_tenants, 20),
    "senders": (returning_senders, 30),
}


def measure(name):
    flood, known_s = FLOODS[name]
    group = ControlGroup(args.memory)
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
        server = System(args.system, args.program, data, prepare=group.enter)
        # a tenant with tables is not new
        write_known(server, 3, args.rate)
        if args.system == "floodmark":
            server.post("/api/v1/admin/flush")
            server.kill()
            server.start()
            # the restart emptied the head, so the series are created again; afterwards they are known
            write_known(server, 3, args.rate)
        known = {}
        # the three tenants write during most of the flood, and repeat what is refused
        watch = Watch(server, group)
        seconds = max(5, known_s // args.part)
        writing = threading.Thread(target=lambda: known.update(write_known(server, seconds, args.rate, started=watch.started)))
        writing.start()
        time.sleep(1)
        stored = Stored(watch)
        watch.began = time.monotonic()
        watch.start()
        try:
            flood(server, stored)
        except (OSError, http.client.HTTPException) as error:
            print("the flood ended: %r" % error, flush=True)
        took_s = watch.stored()
        writing.join()
        ended = watch.finish()
        alive = ended not in ["killed", "exited"]
        result = {
            "system": args.system,
            "flood": name,
            "seconds": min(took_s, watch.ended_s or took_s),
            "acknowledged": stored.acknowledged,
            "lost": stored.lost,
            "known_lost": lost(known),
            "refused": stored.refused,
            "unsent": stored.unsent,
            "known_refused": sum(report["attempts"] - report["requests"] for report in known.values()) if all(known.values()) else None,
            "p99_ms": p99_ms(known),
            "peak_mib": group.peak_mib() or (server.rss_peak_bytes() >> 20 if alive else None),
            "alive": alive,
            "ended": ended,
        }
        server.kill()
    if args.json:
        with open(args.json, "a") as file:
            file.write(json.dumps(result) + "\n")
    return result


columns = ["flood", "seconds", "acknowledged", "lost", "known_lost", "refused", "unsent", "known_refused", "p99_ms", "peak_mib", "ended"]
print("%-14s" % columns[0] + "".join("%14s" % column for column in columns[1:]))
for name in args.floods or list(FLOODS):
    result = measure(name)
    shown = ["%.1f" % value if isinstance(value, float) else str(value) for value in (result[column] for column in columns)]
    print("%-14s" % shown[0] + "".join("%14s" % value for value in shown[1:]), flush=True)
