"""Cost of TLS: the server's CPU per sample of known series, with and without TLS in turn. Connections stay open.

    FLOODMARK=path/to/floodmark python3 bench/tls.py [--series 100000] [--rounds 60] [--batch 2000] [--repeat 3]

`openssl` creates the certificate (P-256). Both servers get the same load, one right after the other, `--repeat` times. The figures
are medians.
"""

import argparse
import os
import shutil
import ssl
import statistics
import subprocess
import tempfile
import time
import urllib.request

from floodmark_bench import Server

args = argparse.ArgumentParser()
args.add_argument("--series", type=int, default=100_000)
args.add_argument("--rounds", type=int, default=60)
args.add_argument("--batch", type=int, default=2000)
args.add_argument("--repeat", type=int, default=3)
args = args.parse_args()


class Encrypted(Server):
    """A server with TLS. Its clients trust the certificate."""

    def __init__(self):
        self.files = tempfile.mkdtemp(prefix="floodmark-bench-tls-")
        self.cert, key = os.path.join(self.files, "cert.pem"), os.path.join(self.files, "key.pem")
        new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
        names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
        subprocess.run(["openssl", *new.split(), *names, "-keyout", key, "-out", self.cert], check=True, stderr=subprocess.DEVNULL)
        super().__init__("--tls-cert", self.cert, "--tls-key", key)

    def start(self):
        trusting = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=self.cert))
        urllib.request.install_opener(urllib.request.build_opener(trusting))
        self.url = "https://" + self.address
        return super().start()

    def stop(self):
        super().stop()
        shutil.rmtree(self.files)


def measure(server, *flags):
    """CPU nanoseconds of the server per sample."""
    shape = ["--metrics", args.series // 400 or 1, "--series", 100, "--writers", 4, "--batch", args.batch]
    report, cpu = server.lab(*shape, *flags)
    return cpu / report["samples_acknowledged"] * 1e9


servers = {"plain": (Server(), []), "TLS": (encrypted := Encrypted(), ["--ca", encrypted.cert])}
found = {name: [] for name in servers}
for turn in range(args.repeat + 1):
    for name, (server, access) in servers.items():
        # the first turn creates the series
        cost = measure(server, "--rounds", args.rounds if turn else 1, *access)
        if turn:
            found[name].append(cost)
            print("%-5s  %.0f ns CPU per sample" % (name, cost), flush=True)
plain, tls = (statistics.median(found[name]) for name in ("plain", "TLS"))
print("TLS costs %.0f %% more CPU per sample (%.0f ns instead of %.0f)" % ((tls / plain - 1) * 100, tls, plain))
for server, _ in servers.values():
    server.stop()
