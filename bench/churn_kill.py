"""Series churn in a small control group, with kill -9 in the middle and at the end. Measures lost samples, and the time until ready.

    FLOODMARK=path/to/floodmark python3 bench/churn_kill.py [--seconds 300] [--cgroup 512] [--memory 400MiB]

Four writers of the lab create series as fast as they get answers, and retry refused requests. Then every acknowledged sample in the
lab's ledger is read back by PromQL, before and after a last flush. The server runs in its own memory control group (version 1 or 2;
needs root). Exits with 1 if a start took longer than --ready seconds, any sample differs, a tenant cannot be sealed, or the kernel
killed the server for lack of memory.
"""

import argparse
import atexit
import json
import os
import subprocess
import sys
import time
import urllib.request

from control_group import ControlGroup
from floodmark_bench import FLOODMARK, Server

args = argparse.ArgumentParser()
args.add_argument("--seconds", type=int, default=300)
args.add_argument("--cgroup", type=int, default=512, help="limit of the control group, in MiB; 0: no control group")
args.add_argument("--memory", default="400MiB")
args.add_argument("--ready", type=float, default=5.0, help="maximum seconds from the start until ready")
args = args.parse_args()


def metrics(server):
    text = urllib.request.urlopen(server.url + "/metrics", timeout=30).read().decode()
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def state(server, when):
    found = metrics(server)
    number = lambda name: float(found.get(name, 0))
    print("%-28s RSS %3d MiB, peak %3d; heads %3d MiB, %7d series; journal %4d MiB in %d segments; %d rounds of sealing" % (
        when, server.rss_bytes() >> 20, server.rss_peak_bytes() >> 20, number("floodmark_head_bytes") / 2**20,
        number("floodmark_head_series"), number("floodmark_journal_bytes") / 2**20, number("floodmark_journal_segments"),
        number("floodmark_seal_rounds_total")), flush=True)
    return found


def restart(server, when):
    state(server, "before kill -9 " + when)
    server.kill()
    ready_s = server.start()
    state(server, "ready after %.2f s" % ready_s)
    return ready_s


def verify(server, ledger, when):
    # small pages, because one metric has very many series
    command = [FLOODMARK, "lab", "verify", ledger, "--read-url", server.url, "--page", "1k", "--json", "--quiet"]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    print("%-28s %s" % (when, ended.stdout.replace("\n", " ")), flush=True)
    return ended.returncode == 0


group = ControlGroup(args.cgroup)
server = Server("--memory", args.memory, prepare=group.enter)
atexit.register(lambda: (server.process.kill(), server.process.wait()))  # also after errors; the directory is kept
ledger = os.path.join(server.dir, "ledger.json")
load = subprocess.Popen(
    [FLOODMARK, "lab", "write", "--target", server.url + "/api/v1/write", "--metrics", "1000", "--series", "125", "--writers", "4",
     "--interval", "1s", "--series-churn", "1s", "--duration", "%ds" % args.seconds, "--give-up-after", "5m",
     "--ledger", ledger, "--json", "--quiet"], stdout=subprocess.PIPE)
time.sleep(args.seconds / 2)
ready = [restart(server, "in the middle")]
time.sleep(max(1, args.seconds / 2 - 5))
ready.append(restart(server, "near the end"))
written = json.loads(load.communicate()[0])["totals"]
print("written", json.dumps({k: v for k, v in written.items() if isinstance(v, (int, float, str))}), flush=True)
ready.append(restart(server, "at the end"))
good = load.returncode == 0 and max(ready) <= args.ready
good &= verify(server, ledger, "read back")
print("flush", json.dumps(server.post("flush")), flush=True)
good &= verify(server, ledger, "read back after a flush")
last = state(server, "at last")
good &= float(last["floodmark_seal_tenants_behind"]) == 0 and group.kills() == 0
print("%s: ready after %s s, killed by the kernel %d times" % (
    "good" if good else "FAILED", ", ".join("%.2f" % s for s in ready), group.kills()))
if not good:
    sys.exit("the data directory is kept in " + server.dir)
server.stop()
