"""A memory control group for the measured process (version 1 or 2; needs root)."""

import atexit
import os


class ControlGroup:
    """A control group with a limit of `limit_mib`; 0 means no group. The group is removed when the script ends."""

    def __init__(self, limit_mib):
        self.dir = None
        if limit_mib == 0:
            return
        v1 = "/sys/fs/cgroup/memory"
        self.is_v1 = os.path.isdir(v1)
        self.dir = "%s/floodmark-bench-%d-%d" % (v1 if self.is_v1 else "/sys/fs/cgroup", os.getpid(), id(self))
        os.mkdir(self.dir)
        atexit.register(self._remove)
        self._write("memory.limit_in_bytes" if self.is_v1 else "memory.max", limit_mib << 20)

    def enter(self):
        """Moves the calling process into the group. Used as `preexec_fn`."""
        if self.dir:
            self._write("cgroup.procs", os.getpid())

    def kills(self):
        """Number of processes of the group that the kernel has killed for lack of memory."""
        if not self.dir:
            return 0
        counts = dict(line.split() for line in self._read("memory.oom_control" if self.is_v1 else "memory.events").splitlines())
        return int(counts.get("oom_kill", 0))

    def peak_mib(self):
        """Peak memory of the group, including its page cache."""
        if not self.dir:
            return 0
        return int(self._read("memory.max_usage_in_bytes" if self.is_v1 else "memory.peak")) >> 20

    def _read(self, name):
        with open(os.path.join(self.dir, name)) as file:
            return file.read()

    def _write(self, name, value):
        with open(os.path.join(self.dir, name), "w") as file:
            file.write(str(value))

    def _remove(self):
        try:
            os.rmdir(self.dir)
        except OSError:
            pass  # the group still contains a process
