"""Three tenants with known series. Their latency shows the effect of other tenants."""

import json
import threading

from floodmark_bench import lab_write

TENANTS = ["a", "b", "c"]
SERIES = 10_000
KNOWN = ["--metrics", 100, "--series", SERIES // 100, "--writers", 1, "--labels", 10]
# These senders stand for other machines, so they must not wait for a processor while the server uses all of them. With a
# high priority among ordinary processes, they still waited for up to 15 ms behind processes of the lowest.
FIRST = ["chrt", "--fifo", "1"]


def of_tenant(tenant):
    return ["--header", "X-Scope-OrgID: " + tenant]


def write(server, tenant, *flags, access=of_tenant, **how):
    """The report of the lab for a load of a tenant. Fails if nothing was acknowledged. `access` returns the flags that name the tenant; `how`
    is as for `lab_write`."""
    return lab_write(server.write_url, *access(tenant), "--read-url", server.read_url, *flags, check=False, **how)


def write_known(server, seconds, rate=10_000, interval_s=None, access=of_tenant, started=None):
    """The reports of the three tenants. They write concurrently, each `rate` samples per second, and read all samples back. With `interval_s`, each
    series gets a sample in every interval instead, and the samples are spread over the interval. A report is `None` if the server is gone.
    `started` is as for `lab_write`."""
    reports = {}
    # small requests, so that a minute has 1,200 of each tenant, and the p99 is not one of the slowest three
    pace = ["--batch", 500, "--rate", rate]
    if interval_s:
        # smaller requests, so that there are still several in a second
        pace = ["--batch", 50, "--rate", "%.3f" % (SERIES / interval_s), "--interval", "%gs" % interval_s]

    def one(tenant):
        # a server without tenants stores the series of all three together, so the series must differ
        of_one = ["--seed", TENANTS.index(tenant) + 1, *pace, "--duration", "%ds" % seconds]
        try:
            reports[tenant] = write(
                server, tenant, *KNOWN, *of_one, "--give-up-after", "5s", "--verify", priority=FIRST, access=access, started=started)
        except json.JSONDecodeError:
            reports[tenant] = None

    threads = [threading.Thread(target=one, args=(tenant,)) for tenant in TENANTS]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return reports


def by_tenant(reports, figure):
    """`figure` of the report of each tenant; `None` where the report is missing, or what the figure is from."""
    figures = {}
    for tenant in TENANTS:
        try:
            figures[tenant] = figure(reports[tenant])
        except (KeyError, TypeError):
            figures[tenant] = None
    return figures


FIGURES = {
    "p99_ms": lambda report: report["latency"]["p99_s"] * 1e3,
    "refused": lambda report: report["attempts"] - report["succeeded"],
    "unsent": lambda report: report["given_up"] + report["rejected"] + report["unsent"],
    "lost": lambda report: report["verify"]["lost"],
}


def figures(reports):
    """For each tenant: the p99; attempts that were not successful, which are repeated; requests that were given up or not sent in time; and
    acknowledged samples that cannot be read."""
    return {name: by_tenant(reports, figure) for name, figure in FIGURES.items()}


def p99_ms(reports):
    """The p99 of the slowest tenant; `None` if a report is missing."""
    reports = list(reports.values())
    return max(report["latency"]["p99_s"] for report in reports) * 1e3 if all(reports) else None


def lost(reports):
    """Number of acknowledged samples that cannot be read; `None` if it is not known."""
    verdicts = [report and report["verify"] for report in reports.values()]
    return sum(verdict["lost"] for verdict in verdicts) if all(verdicts) else None
