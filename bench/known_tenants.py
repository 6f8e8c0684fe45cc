"""Three tenants with known series. Their latency shows the effect of other tenants."""

import json
import threading

from floodmark_bench import lab_write

TENANTS = ["a", "b", "c"]
# small requests, so that a minute has 1,200 of each tenant, and the p99 is not one of the slowest three
KNOWN = ["--metrics", 100, "--series", 100, "--writers", 1, "--labels", 10, "--batch", 500]
# These senders stand for other machines, so they must not wait for a processor while the server uses all of them.
NICE = -10


def of_tenant(tenant):
    return ["--header", "X-Scope-OrgID: " + tenant]


def write(server, tenant, *flags, nice=0):
    """The report of the lab for a load of a tenant. Fails if nothing was acknowledged."""
    return lab_write(server.write_url, *of_tenant(tenant), "--read-url", server.read_url, *flags, check=False, nice=nice)


def write_known(server, seconds, rate=10_000):
    """The reports of the three tenants. They write concurrently, each `rate` samples per second, and read all samples back. A report is
    `None` if the server is gone."""
    reports = {}

    def one(tenant):
        # a server without tenants stores the series of all three together, so the series must differ
        of_one = ["--seed", TENANTS.index(tenant) + 1, "--rate", rate, "--duration", "%ds" % seconds]
        try:
            reports[tenant] = write(server, tenant, *KNOWN, *of_one, "--give-up-after", "5s", "--verify", nice=NICE)
        except json.JSONDecodeError:
            reports[tenant] = None

    threads = [threading.Thread(target=one, args=(tenant,)) for tenant in TENANTS]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return reports


def p99_ms(reports):
    """The p99 of the slowest tenant; `None` if a report is missing."""
    reports = list(reports.values())
    return max(report["latency"]["p99_s"] for report in reports) * 1e3 if all(reports) else None


def lost(reports):
    """Number of acknowledged samples that cannot be read; `None` if it is not known."""
    verdicts = [report and report["verify"] for report in reports.values()]
    return sum(verdict["lost"] for verdict in verdicts) if all(verdicts) else None
