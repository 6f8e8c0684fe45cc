"""A memory control group of its own for the process that is measured (version 1 or 2; needs root)."""

import atexit
import os


class ControlGroup:
    """A control group with a limit of `limit_mib`; 0: none. It is removed when the script ends."""

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
        """Moves the calling process into the group: for `preexec_fn`."""
        if self.dir:
            self._write("cgroup.procs", os.getpid())

    def kills(self):
        """Processes of the group that the kernel has killed for want of memory."""
        if not self.dir:
            return 0
        counts = dict(line.split() for line in self._read("memory.oom_control" if self.is_v1 else "memory.events").splitlines())
        return int(counts.get("oom_kill", 0))

    def peak_mib(self):
        """Largest memory of the group, its page cache included."""
        name = "memory.max_usage_in_bytes" if self.is_v1 else "memory.peak"
        return int(self._read(name)) >> 20 if self.dir else 0

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
            pass  # a process is still in it
