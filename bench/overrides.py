"""Changes of the overrides file under load: the time until each is in effect, and the effect on the tenants that write.

    FLOODMARK=path/to/floodmark python3 bench/overrides.py [--changes 100] [--memory 512] [--rate 10000]

Three tenants write 10 k known series each at a fixed rate (latency from the intended start), first alone, and then while the overrides file is
replaced --changes times, at random times about half a second apart. Every version has another general value, another value for one of the tenants and
another class. Every third version is broken, and must change nothing.

A valid version is in effect when `/runtime_config` shows all its values, and a broken one has been read when the server counts it as failed. Prints
the median and the longest of these times, the number of broken versions that had an effect, the p99 of the slowest of the three tenants alone and
meanwhile, and the acknowledged samples that are lost.
"""

import argparse
import os
import random
import statistics
import tempfile
import threading
import time
import urllib.request

from control_group import ControlGroup
from floodmark_bench import FLOODMARK, metric
from known_tenants import figures, lost, p99_ms, write_known
from systems import System

parser = argparse.ArgumentParser()
parser.add_argument("--changes", type=int, default=100)
parser.add_argument("--memory", type=int, default=512, help="MiB of the control group; 0: none")
parser.add_argument("--rate", type=int, default=10_000, help="samples per second of each of the three tenants")
args = parser.parse_args()

FAILED = 'floodmark_file_reloads_total{file="overrides",result="failed"}'
BROKEN = ["query_samples = 7\n[tenant.a\n", "query_samples = 0\n", "actve_series = 1\n", "query_samples = 7\nquery_samples = 8\n"]
# a version that has no effect within this time ends the script
PATIENCE_S = 30


def version(number):
    """A valid file, whose values are different in each version."""
    return "query_samples = %d\n[tenant.b]\nquery_samples = %d\n[class.some]\ntenants = [\"c*\"]\nquery_samples = %d\n" % values(number)


def values(number):
    return tuple(tenant * 10_000_000 + number for tenant in (1, 2, 3))


def replace(path, text):
    """As an operator should: a new file beside the old one, which is renamed."""
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)


def in_effect(server):
    """The text of the settings that are in effect."""
    return urllib.request.urlopen(server.base + "/runtime_config", timeout=30).read().decode()


def wait(check):
    """Seconds until `check` is true."""
    began = time.monotonic()
    while not check():
        if time.monotonic() - began > PATIENCE_S:
            raise SystemExit("a change of the overrides file was not seen within %d s" % PATIENCE_S)
        time.sleep(0.005)
    return time.monotonic() - began


def change(server, path):
    """Replaces the file again and again. Returns the times until valid and until broken versions were seen, and what was wrong."""
    valid_s, broken_s, wrong, current = [], [], 0, 0

    def shows(number):
        text = in_effect(server)
        return all(str(value) in text for value in values(number))

    for number in range(1, args.changes + 1):
        time.sleep(random.uniform(0, 1))
        if number % 3:
            replace(path, version(number))
            valid_s.append(wait(lambda: shows(number)))
            current = number
        else:
            before = metric(server.base, FAILED)
            replace(path, BROKEN[number // 3 % len(BROKEN)])
            broken_s.append(wait(lambda: metric(server.base, FAILED) > before))
            wrong += not shows(current)
    return valid_s, broken_s, wrong


def show_s(times):
    return "median %.3f s, longest %.3f s (%d versions)" % (statistics.median(times), max(times), len(times)) if times else "none"


random.seed(1)
group = ControlGroup(args.memory)
with tempfile.TemporaryDirectory(prefix="floodmark-bench-") as folder:
    path = os.path.join(folder, "overrides.toml")
    replace(path, version(0))
    server = System("floodmark", FLOODMARK, os.path.join(folder, "data"), "--overrides", path, prepare=group.enter)
    write_known(server, 3, args.rate)
    # a change takes about a second: half of it until it is made, half until it is seen
    seconds = max(2, args.changes)
    quiet = write_known(server, min(seconds, 60), args.rate)
    busy = {}
    writing = threading.Thread(target=lambda: busy.update(write_known(server, seconds, args.rate)))
    writing.start()
    began = time.monotonic()
    valid_s, broken_s, wrong = change(server, path)
    took_s = time.monotonic() - began
    writing.join()
    print("%d changes in %.0f s, while the tenants wrote for %d s" % (args.changes, took_s, seconds))
    print("until a valid version is in effect: " + show_s(valid_s))
    print("until a broken version is refused:  " + show_s(broken_s))
    print("broken versions that had an effect: %d" % wrong)
    alone_ms, meanwhile_ms = p99_ms(quiet), p99_ms(busy)
    if alone_ms is None or meanwhile_ms is None:
        raise SystemExit("the server is gone")
    print("p99 of the slowest tenant: %.2f ms alone, %.2f ms meanwhile" % (alone_ms, meanwhile_ms))
    print("lost %s; refused by tenant %s" % (lost(busy), figures(busy)["refused"]))
    print("peak memory %d MiB, killed by the kernel %d" % (group.peak_mib() or server.rss_peak_bytes() >> 20, group.kills()))
    server.kill()
