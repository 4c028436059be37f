# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#
# What the end-to-end test scripts and the bench share: where a program runs (provider, mode, user,
# network namespace), programs in pairs with a time limit, and the report.
"""Programs on the adapter: launching, waiting, reporting."""

import os
import signal
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("ER_BUILD", os.path.join(TOP, "build"))
RUN = os.path.join(BUILD, "bin", "erdma-run")

PLAIN_UID = 1000
PLAIN_MEMLOCK = 64 * 1024
TCP_ESTABLISHED = "01"
TCP_LISTEN = "0A"


class Stop(Exception):
    """A case cannot go on; the text says why."""


class Skip(Exception):
    """A case does not apply here; the text says why."""


# ---------------------------------------------------------------------------------- the report


class Report:
    """One line per case, and a closing line of counts."""

    def __init__(self, log_dir, total=None):
        self.passed = self.failed = self.skipped = 0
        self.total = total
        self.log_dir = log_dir
        self.start = time.monotonic()
        os.makedirs(log_dir, exist_ok=True)

    def _line(self, mark, name, text, seconds):
        done = self.passed + self.failed + self.skipped
        count = f"[{done}/{self.total}] " if self.total else ""
        took = f" ({seconds:.1f} s)" if seconds is not None else ""
        print(f"{mark:<5}{count}{name}{took}{': ' + text if text else ''}", flush=True)

    def ok(self, name, seconds=None, text=""):
        self.passed += 1
        self._line("ok", name, text, seconds)

    def fail(self, name, text, seconds=None, log=None):
        self.failed += 1
        path = None
        if log:
            path = os.path.join(self.log_dir, name.replace("/", "_").replace(" ", "_") + ".log")
            with open(path, "w", encoding="utf-8", errors="replace") as file:
                file.write(log)
        self._line("FAIL", name, text, seconds)
        if path:
            tail = [line for line in log.splitlines() if line.strip()][-12:]
            for line in tail:
                print("     | " + line[:200])
            print(f"     whole log: {os.path.relpath(path)}", flush=True)

    def skip(self, name, text):
        self.skipped += 1
        self._line("SKIP", name, text, None)

    def close(self):
        print(f"\n{time.monotonic() - self.start:.0f} s")
        print(f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped", flush=True)
        return 1 if self.failed or not self.passed else 0


# ---------------------------------------------------------------------------------- where


def reachable_by(uid):
    """Whether that user may run what was built: the folders above may be somebody's own."""
    return not subprocess.run(["test", "-x", RUN], user=uid, group=uid, check=False).returncode


class Place:
    """How and where a program runs."""

    def __init__(self, provider="ours", mode=None, device=None, plain=False, netns=None, extra=(),
                 run=RUN):
        self.provider = provider
        self.mode = mode
        self.device = device
        self.plain = plain
        self.netns = netns
        self.extra = list(extra)
        self.run = run

    def argv(self, *program):
        words = []
        if self.netns:
            words += ["ip", "netns", "exec", self.netns]
        if self.plain and os.geteuid() == 0:
            if not reachable_by(PLAIN_UID):
                raise Skip(f"uid {PLAIN_UID} has no way to {RUN}")
            words += ["setpriv", f"--reuid={PLAIN_UID}", f"--regid={PLAIN_UID}", "--clear-groups",
                      "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
        if self.plain:
            words += ["prlimit", f"--memlock={PLAIN_MEMLOCK}"]
        words += [self.run]
        if self.provider != "ours":
            words += ["--provider", self.provider]
        if self.mode:
            words += ["--mode", self.mode]
        if self.device:
            words += ["--device", self.device]
        return words + self.extra + [str(word) for word in program]


# ---------------------------------------------------------------------------------- programs


class Program:
    """A process in a session of its own, with its output in a file."""

    all = []

    def __init__(self, argv, env=None, cwd=None, stdin=subprocess.DEVNULL):
        self.argv = argv
        self.output = tempfile.TemporaryFile()
        self.started = time.monotonic()
        full_env = dict(os.environ)
        full_env.update(env or {})
        self.process = subprocess.Popen(argv, stdin=stdin, stdout=self.output, cwd=cwd,
                                        stderr=subprocess.STDOUT, env=full_env,
                                        start_new_session=True)
        Program.all.append(self)

    @property
    def pid(self):
        return self.process.pid

    def text(self):
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def running(self):
        return self.process.poll() is None

    def wait(self, timeout):
        """The exit status, or None when it still runs after @timeout seconds."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def signal(self, number):
        """To the program and everything it started."""
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass

    def kill(self):
        self.signal(signal.SIGKILL)
        self.process.wait()

    def log(self):
        code = self.process.poll()
        state = "still running" if code is None else f"exit status {code}"
        return f"$ {' '.join(self.argv)}\n# {state}\n{self.text()}\n"

    @classmethod
    def end_all(cls, first=0):
        """All, or all but the @first that were started."""
        for program in cls.all[first:]:
            # what it started may outlive it
            program.kill()
            program.output.close()
        del cls.all[first:]

    @classmethod
    def all_logs(cls):
        return "\n".join(program.log() for program in cls.all)


def has_option(program, option):
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)
    return option in text.stdout + text.stderr


def unless_refused(run, tries):
    """
    What run() returns, and how often it had to be called before.  perftest's server with -R listens twice on
    the same port, once to exchange data and once for the QPs, and the client does not wait for the second
    time: where it is faster it is refused, and both sides are started again.
    """
    others = len(Program.all)
    for attempt in range(tries):
        try:
            return run(), attempt
        except Stop:
            refused = any("RDMA_CM_EVENT_REJECTED; error: -111" in one.text() for one in Program.all[others:])
            if not refused or attempt == tries - 1:
                raise
            Program.end_all(others)
    raise ValueError(f"{tries} tries")


def tcp_sockets(port, state, netns=None):
    """How many TCP sockets of local port @port are in @state; what rdma_cm does stands on them."""
    text = ""
    for table in ("tcp", "tcp6"):
        path = f"/proc/net/{table}"
        if netns:
            text += subprocess.run(["ip", "netns", "exec", netns, "cat", path],
                                   capture_output=True, text=True, check=False).stdout
        else:
            with open(path, encoding="ascii") as file:
                text += file.read()
    count = 0
    for line in text.splitlines():
        words = line.split()
        if len(words) > 3 and words[3] == state and words[1].endswith(f":{port:04X}"):
            count += 1
    return count


def tcp_listens(port, netns=None):
    return tcp_sockets(port, TCP_LISTEN, netns) > 0


def wait_listen(program, port, netns=None, seconds=10):
    end = time.monotonic() + seconds
    while not tcp_listens(port, netns):
        if not program.running():
            raise Stop(f"the server ended with {program.process.returncode} before it listened")
        if time.monotonic() > end:
            raise Stop(f"the server does not listen on port {port} after {seconds} s")
        time.sleep(0.02)


class Ports:
    """Port numbers that nobody uses, each handed out once."""

    def __init__(self, first):
        self.next = first

    def take(self):
        while tcp_listens(self.next):
            self.next += 1
        self.next += 1
        return self.next - 1


def finish(program, what, timeout, status=0):
    code = program.wait(timeout)
    if code is None:
        raise Stop(f"the {what} still runs after {timeout} s")
    if status is not None and code != status:
        raise Stop(f"the {what} ended with {code}, expected {status}")
    return code


def need_build():
    if not os.access(RUN, os.X_OK):
        sys.exit(f"{os.path.relpath(RUN)} is missing: run ./dev build first")


def snapshot(places=("/tmp", "/dev/shm", "/run")):
    """What stands directly in these folders, to find what a program leaves behind."""
    found = set()
    for place in places:
        found.update(os.path.join(place, name) for name in os.listdir(place))
    return found


def interrupted(_number, _frame):
    Program.end_all()
    sys.exit(130)


def handle_signals():
    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, interrupted)
