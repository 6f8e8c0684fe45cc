"""Attacks on the server by a tenant with valid credentials, while other tenants watch.

    FLOODMARK=path/to/floodmark python3 bench/attacks.py --script PATH [--memory 512] [--flags "--memory 256MiB"]
                                                         [--rate 10000] [--json FILE] [ATTACK ...]

PATH is a Python file of attacks, which is not part of this repository. It has a class `Server` of a URL and a process, with `host`, `port` and the
method `ask`; a class `Canary` of a server, with `start`, `end`, and the MiB `before` and `peak`; and a dictionary `ATTACKS`: for each name a function
of a server and of options, which returns a verdict of what a canary has seen, and a text of what a pass is.
Without ATTACKs, all but `churn` and `restarted` are run. `churn` is followed by a SIGKILL, a start on the same directory, and `restarted`.

Each attack gets a fresh server with `--auth-file` in a memory control group of --memory MiB, and the further flags of --flags. The attacker has a token
with the roles read and write of its own tenant; it sends this token with every request. Three other tenants, each with a token of its own, write 10 k
known series each at a fixed rate, first for ten seconds alone, and then in turns of ten seconds until the attack is over.

A row has the verdict of the script (an attack that fails for want of a right is not always a pass for it); the p99 of the slowest of the three alone,
and of the worst turn during the attack, and their slowest request; attempts of the three that were refused, and acknowledged samples that are lost;
the seconds until the last turn was over; the peak memory of the group; and whether the server still answers. What the script prints follows.

The three tenants have a higher priority than the server (needs root), and the attacker the lowest.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import io
import json
import os
import socket
import tempfile
import threading
import time
import urllib.request

from control_group import ControlGroup
from known_tenants import TENANTS, figures, lost, p99_ms, write_known
from systems import System
from floodmark_bench import FLOODMARK

parser = argparse.ArgumentParser()
parser.add_argument("--script", required=True, help="the file of attacks")
parser.add_argument("--memory", type=int, default=512, help="MiB of the control group; 0: none")
parser.add_argument("--flags", default="--memory 256MiB", help="further flags of the server")
parser.add_argument("--rate", type=int, default=10_000, help="samples per second of each of the three tenants")
parser.add_argument("--turn", type=int, default=10, help="seconds of a turn of the three tenants")
parser.add_argument("--blow", type=int, default=512, help="MiB that an attack tries to make the server hold")
parser.add_argument("--churn-seconds", type=int, default=120)
parser.add_argument("--json", help="file to which each row is appended as a line")
parser.add_argument("attacks", nargs="*")
args = parser.parse_args()

ATTACKER, OPERATOR = "attacker", "operator"

spec = importlib.util.spec_from_file_location("attacks_of_script", args.script)
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)


def authorization(who):
    return "Bearer the token of %s" % who


def access(tenant):
    """Flags of the lab, for `known_tenants`."""
    return ["--header", "Authorization: " + authorization(tenant)]


def write_credentials(path):
    rights = {ATTACKER: 'tenants = ["attacker"]\nroles = ["read", "write"]\n', OPERATOR: 'roles = ["metrics", "admin"]\n'}
    rights |= {tenant: 'tenants = ["%s"]\nroles = ["read", "write"]\n' % tenant for tenant in TENANTS}
    with open(path, "w") as file:
        for who, granted in rights.items():
            digest = hashlib.sha256(authorization(who).removeprefix("Bearer ").encode()).hexdigest()
            file.write('[token.%s]\nsha256 = "%s"\n%s' % (who, digest, granted))


class Socket(socket.socket):
    """Adds the attacker's credentials to requests that the script writes itself, with the header `Host` in the first part."""

    def sendall(self, data, *flags):
        name, end, rest = data.partition(b"\r\nHost: ")
        value, line_end, rest = rest.partition(b"\r\n")
        if line_end:
            data = name + end + value + b"\r\nAuthorization: " + authorization(ATTACKER).encode() + line_end + rest
        return super().sendall(data, *flags)


class Attacked(script.Server):
    """The server as the script attacks it: with the attacker's credentials. Only the script's own look at `/metrics` has those of an operator."""

    def ask(self, method, path, body=None, headers=None, timeout=30, who=ATTACKER):
        return super().ask(method, path, body, {**(headers or {}), "Authorization": authorization(who)}, timeout)

    def metric(self, name):
        for line in self.ask("GET", "/metrics", who=OPERATOR)[2].decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
        return 0.0

    def open(self, rcvbuf=None):
        opened = Socket(socket.AF_INET)
        if rcvbuf:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        opened.settimeout(10)
        opened.connect((self.host, self.port))
        return opened


def attack(server, name):
    """Runs an attack with the script's canary. Returns whether the script calls it a pass."""
    attacked = Attacked(server.base, server.process.pid)
    canary = None
    if name != "restarted":
        canary = script.Canary(attacked)
        canary.start()
        time.sleep(1)
    # for the threads of the attack too, but not for those of the canary
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
    try:
        verdict = script.ATTACKS[name][0](attacked, args)
    except Exception as error:  # any error of a script that is not ours
        print("   the attack itself failed: %r" % error)
        verdict = lambda seen: False
    seen = {}
    if canary:
        seen = {**canary.end(), "growth": canary.peak - canary.before}
        for what in ["write", "healthy", "query"]:
            good, p99_s, worst_s = seen[what]
            print("   canary %-8s good %5.1f %%, p99 %.2f s, worst %.2f s" % (what, good * 100, p99_s, worst_s))
        print("   RSS %d MiB before, %d MiB at the most" % (canary.before, canary.peak))
    return bool(verdict(seen))


def is_alive(server, group):
    try:
        urllib.request.urlopen(server.base + "/-/healthy", timeout=10)
    except OSError:
        return False
    return group.kills() == 0


def worst(values):
    return None if None in values else max(values, default=None)


def measure(name, server, group):
    """Runs an attack while the three tenants write. Returns a row."""
    alone = write_known(server, args.turn, args.rate, access=access)
    passed = []
    said = io.StringIO()

    def run():
        # only this thread prints meanwhile
        with contextlib.redirect_stdout(said):
            passed.append(attack(server, name))

    began = time.monotonic()
    attacker = threading.Thread(target=run)
    attacker.start()
    turns = []
    while attacker.is_alive() or not turns:
        turns.append(write_known(server, args.turn, args.rate, access=access))
        if None in turns[-1].values() and not is_alive(server, group):
            break
    attacker.join()
    found = [figures(reports) for reports in turns]
    losses = [lost(reports) for reports in turns]
    slowest = [report and report["latency"]["max_s"] * 1e3 for reports in turns for report in reports.values()]
    return {
        "attack": name,
        "pass": passed == [True],
        "alone_ms": p99_ms(alone),
        "p99_ms": worst([p99_ms(reports) for reports in turns]),
        "max_ms": worst(slowest),
        "refused": sum(count or 0 for figure in found for count in figure["refused"].values()),
        "lost": None if None in losses else sum(losses),
        "seconds": time.monotonic() - began,
        "peak_mib": group.peak_mib() or server.rss_peak_bytes() >> 20,
        "alive": is_alive(server, group),
        "said": said.getvalue(),
    }


def show(row):
    shown = [row[column] for column in COLUMNS]
    shown = ["-" if value is None else "%.1f" % value if isinstance(value, float) else str(value) for value in shown]
    print("%-17s" % shown[0] + "".join("%10s" % value for value in shown[1:]))
    print(row["said"], end="", flush=True)
    if args.json:
        with open(args.json, "a") as file:
            file.write(json.dumps(row) + "\n")


COLUMNS = ["attack", "pass", "alone_ms", "p99_ms", "max_ms", "refused", "lost", "seconds", "peak_mib", "alive"]
print("%-17s" % COLUMNS[0] + "".join("%10s" % column for column in COLUMNS[1:]))
for name in args.attacks or [name for name in script.ATTACKS if name not in ("churn", "restarted")]:
    group = ControlGroup(args.memory)
    with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as data:
        auth = os.path.join(data, "auth.toml")
        write_credentials(auth)
        flags = ["--auth-file", auth, "--trusted-proxies", "[]", *args.flags.split()]
        server = System("floodmark", FLOODMARK, os.path.join(data, "data"), *flags, prepare=group.enter)
        # afterwards the series are known
        write_known(server, 3, args.rate, access=access)
        show(measure(name, server, group))
        if name == "churn":
            server.kill()
            print("killed; ready again after %.1f s" % server.start(), flush=True)
            show(measure("restarted", server, group))
        server.kill()
