# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""What is on the wire is iWARP: tshark's dissectors read it without a malformed packet."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import cases as programs
from cases import Case, Site
from stand import BUILD, Place, Program, Skip, Stop

# RFC 5040 4.3 and RFC 7306 section 8: what each opcode is called in a report
OPCODES = {0: "Write", 1: "Read Request", 2: "Read Response", 3: "Send", 4: "Send with Invalidate",
           5: "Send with SE", 6: "Send with SE and Invalidate", 7: "Terminate",
           8: "Immediate", 9: "Immediate with SE", 10: "Atomic Request", 11: "Atomic Response"}
FIELDS = ("frame.number", "iwarp_mpa.req", "iwarp_mpa.rep", "iwarp_mpa.fpdu", "iwarp_rdma.opcode",
          "_ws.malformed", "iwarp_mpa.bad_length", "_ws.expert.message", "frame.protocols")


def capture(port, run):
    """The dissected packets of what @run does on @port: a list of dictionaries by field."""
    if os.geteuid():
        raise Skip("capturing needs root")
    if not shutil.which("tshark") or not shutil.which("dumpcap"):
        raise Skip("tshark is not installed")
    folder = tempfile.mkdtemp(prefix="er-e2e-")
    path = os.path.join(folder, "capture.pcapng")
    try:
        os.chmod(folder, 0o777)
        dump = Program(["dumpcap", "-q", "-i", "lo", "-B", "64", "-f", f"tcp port {port}", "-w", path])
        end = time.monotonic() + 10
        while not os.path.exists(path) or os.path.getsize(path) == 0:
            if not dump.running() or time.monotonic() > end:
                raise Skip(f"capturing on lo does not work: {dump.text().strip()[-200:]}")
            time.sleep(0.05)
        time.sleep(0.3)
        # Linux captures loopback packets of two processors as they come, not in the order of the stream,
        # and where that is broken tshark takes payload for headers.
        everywhere = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(everywhere)})
        try:
            run()
        finally:
            os.sched_setaffinity(0, everywhere)
        time.sleep(0.7)
        dump.signal(signal.SIGINT)
        dump.wait(10)
        dropped = re.search(r"(\d+) packets? dropped", dump.text())
        if dropped and int(dropped.group(1)):
            raise Stop(f"the capture lost {dropped.group(1)} packets")
        # These two guess at the payload of a Send, and call perftest's a malformed packet of theirs.
        argv = ["tshark", "-r", path, "--disable-protocol", "rpcordma", "--disable-protocol",
                "smb_direct", "-o", "tcp.desegment_tcp_streams:TRUE",
                # the client's port may be one that is registered for something else
                "-o", "tcp.try_heuristic_first:TRUE", "-T", "fields",
                "-E", "separator=|", "-E", "occurrence=a", "-E", "aggregator=;"]
        for field in FIELDS:
            argv += ["-e", field]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode:
            raise Stop(f"tshark: {done.stderr.strip()[-300:]}")
        whole = subprocess.run(["tshark", "-r", path, "-V", "-O", "iwarp_mpa"], capture_output=True,
                               text=True, check=False, timeout=120).stdout
        if "Bad CRC" in whole:
            raise Stop(f"{whole.count('Bad CRC')} FPDUs have a bad CRC")
        rows = []
        for line in done.stdout.splitlines():
            words = line.split("|")
            rows.append(dict(zip(FIELDS, words + [""] * len(FIELDS))))
        return rows
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_rows(rows, expected, forbidden=()):
    if not any(row["iwarp_mpa.req"] for row in rows):
        raise Stop(f"tshark sees no MPA request in {len(rows)} packets")
    if not any(row["iwarp_mpa.rep"] for row in rows):
        raise Stop("tshark sees no MPA reply")
    bad = [f"{row['frame.number']} ({row['frame.protocols']}: {row['_ws.expert.message'][:100]})"
           for row in rows if row["_ws.malformed"]]
    if bad:
        raise Stop(f"{len(bad)} malformed packets: {', '.join(bad[:5])}")
    bad = [row["frame.number"] for row in rows if row["iwarp_mpa.bad_length"]]
    if bad:
        raise Stop(f"FPDUs of a bad length in packets: {', '.join(bad[:10])}")
    seen = {}
    for row in rows:
        for word in row["iwarp_rdma.opcode"].replace(",", ";").split(";"):
            if word:
                number = int(word, 0)
                seen[number] = seen.get(number, 0) + 1
    missing = [OPCODES[number] for number in expected if not seen.get(number)]
    if missing:
        raise Stop(f"not on the wire: {', '.join(missing)}; there are "
                   f"{', '.join(f'{count} {OPCODES.get(n, n)}' for n, count in sorted(seen.items()))}")
    wrong = [OPCODES[number] for number in forbidden if seen.get(number)]
    if wrong:
        raise Stop(f"unexpected on the wire: {', '.join(wrong)}")
    return f"{len(rows)} packets: " + ", ".join(
        f"{count} {OPCODES.get(n, n)}" for n, count in sorted(seen.items()))


def traffic(here, expected, function, *args):
    port = programs.PORTS.take()
    rows = capture(port, lambda: function(here, *args, port=port))
    return check_rows(rows, expected, forbidden=(7,))


def atomic_traffic(here):
    if not programs.has_atomics(here.client):
        raise Skip("the device has no atomics")
    return traffic(here, (10, 11), programs.perftest, "ib_atomic_lat", "-n", "50")


def terminate(here):
    """A test program of the acceptance suite breaks a rule; the responder answers with a Terminate."""
    program = os.path.join(BUILD, "tests", "accept", "memory_region")
    if not os.access(program, os.X_OK):
        raise Skip("tests/accept is not built")
    # its ports are chosen by the kernel, so the capture takes all of this range
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        low, high = file.read().split()

    def run():
        done = Program(here.client.argv(program, "wrong_remote_key"))
        if done.wait(60) != 0:
            raise Stop("the test program failed")

    rows = capture(f"1 or tcp portrange {low}-{high}", run)
    rows = [row for row in rows if row["iwarp_mpa.req"] or row["iwarp_mpa.rep"] or
            row["iwarp_rdma.opcode"] or row["_ws.malformed"]]
    return check_rows(rows, (7,))


def cases(quick):
    here = Site("ours", "127.0.0.1", Place(), Place())
    system = Site("system", "127.0.0.1", Place(provider="system"), Place(provider="system"))
    found = [
        Case("tshark rping ours", traffic, here, (0, 1, 2, 3), programs.rping, "-C", "20", "-V"),
        Case("tshark terminate ours", terminate, here),
    ]
    if not quick:
        found += [
            Case("tshark ib_send_lat ours", traffic, here, (3,), programs.perftest, "ib_send_lat",
                 "-n", "100"),
            Case("tshark ib_read_lat ours", traffic, here, (1, 2), programs.perftest, "ib_read_lat",
                 "-n", "100"),
            Case("tshark ib_write_bw 64 KiB ours", traffic, here, (0,), programs.perftest,
                 "ib_write_bw", "-n", "50"),
            Case("tshark ib_read_bw 1 MiB ours", traffic, here, (1, 2), programs.perftest,
                 "ib_read_bw", "-n", "10", "-s", "1048576"),
            Case("tshark atomics ours", atomic_traffic, here),
            Case("tshark rping system", traffic, system, (0, 1, 2, 3), programs.rping, "-C", "20",
                 "-V"),
        ]
    return found
