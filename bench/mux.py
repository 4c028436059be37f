# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The mux's figures: mux_bench over a loopback umad, the daemon held to one core, QEMU's own mux beside it."""

import os
import statistics
import subprocess
import tempfile

CLIENTS = (1, 16, 1000)
RELAYED_TARGET = 200000  # a second and core
STALLED_TARGET = 1.5  # p99 next to a client that does not read
TIMEOUT = 600
HERE = os.path.dirname(os.path.abspath(__file__))
OLD = "QEMU's own mux"


def old_mux():
    """QEMU's own, fetched and built once; None where that is not possible."""
    cache = os.environ.get("ER_CACHE") or os.path.join(os.path.dirname(HERE), ".cache")
    folder = os.path.join(cache, "old-mux")
    program = os.path.join(folder, "rdmacm-mux")
    if not os.access(program, os.X_OK):
        done = subprocess.run([os.path.join(HERE, "old-mux"), folder], text=True, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=TIMEOUT)
        if done.returncode:
            print(f"  {OLD} could not be built: {done.stdout.strip()[-200:]}")
            return None
    return program


def run_once(program, seconds, other):
    """One run's figures: name to value."""
    with tempfile.TemporaryDirectory(prefix="er-bench-") as folder:
        out = os.path.join(folder, "results")
        command = [program, "--pin", f"--seconds={seconds}", f"--results={out}"]
        if other:
            command.append(f"--other={other}")
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              timeout=TIMEOUT)
        if done.returncode:
            raise OSError(f"mux_bench ends with {done.returncode}: {done.stdout.strip()[-300:]}")
        with open(out, encoding="utf-8") as file:
            lines = [line.rsplit(" ", 1) for line in file]
        return {name: float(value) for name, value in lines}


def rows(program, rounds, quick):
    """(name, unit, ours, other, other_name, target, at_most) for each line of the bench's table."""
    other = old_mux()
    runs = [run_once(program, 0.5 if quick else 2, other) for _ in range(rounds)]
    value = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    for name in value:
        print(f"  {name}: " + " ".join(f"{run[name]:.4g}" for run in runs), flush=True)
    table = []
    for clients in CLIENTS:
        table.append((f"mux, {clients} clients, a core", "MADs/s", value[f"relayed {clients}"],
                      None, "", RELAYED_TARGET, False))
    for clients in CLIENTS:
        for part in ("p50", "p99"):
            table.append((f"mux, {clients} clients, {part}", "us", value[f"{part} {clients}"], None,
                          "", None, True))
    for clients in (2, 16):
        for part, unit in (("p50", "us"), ("p99", "us"), ("relayed", "MADs/s")):
            table.append((f"mux, {clients} of QEMU's kind, {part}", unit, value[f"answer {part} {clients}"],
                          value.get(f"other {part} {clients}"), OLD if other else "", None, True))
    table.append(("mux, p99 next to a stalled client", "us", value["disturbed 1000"], value["undisturbed 1000"],
                  "without it", STALLED_TARGET, True))
    table.append(("mux, a client with a GID", "bytes", value["memory client"], None, "", None, True))
    table.append(("mux, a session", "bytes", value["memory session"], None, "", None, True))
    return table
