"""Three tenants with known series, whose latency shows what others do to them."""

import json
import threading

from floodmark_bench import lab_write

TENANTS = ["a", "b", "c"]
KNOWN = ["--metrics", 100, "--series", 100, "--writers", 1, "--labels", 10]


def of_tenant(tenant):
    return ["--header", "X-Scope-OrgID: " + tenant]


def write(server, tenant, *flags):
    """The report of the lab for a load of a tenant; there is none where nothing was acknowledged."""
    return lab_write(server.write_url, *of_tenant(tenant), "--read-url", server.read_url, *flags, check=False)


def write_known(server, seconds, rate=10_000):
    """The reports of the three tenants, who write so many samples a second each, at the same time, and read everything back; `None` for
    one whose server is gone."""
    reports = {}

    def one(tenant):
        # a server without tenants takes them for one: their series differ
        of_one = ["--seed", TENANTS.index(tenant) + 1, "--rate", rate, "--duration", "%ds" % seconds]
        try:
            reports[tenant] = write(server, tenant, *KNOWN, *of_one, "--give-up-after", "5s", "--verify")
        except json.JSONDecodeError:
            reports[tenant] = None

    threads = [threading.Thread(target=one, args=(tenant,)) for tenant in TENANTS]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return reports


def p99_ms(reports):
    """The p99 of the worst of them; `None` if one has no report."""
    reports = list(reports.values())
    return max(report["latency"]["p99_s"] for report in reports) * 1e3 if all(reports) else None


def lost(reports):
    """Acknowledged samples of theirs that cannot be read; `None` if that is not known."""
    verdicts = [report and report["verify"] for report in reports.values()]
    return sum(verdict["lost"] for verdict in verdicts) if all(verdicts) else None
