# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""One side is killed in the middle of its work: the other must notice, end, and leave nothing."""

import os
import random
import re
import signal
import time

from cases import PORTS, Case, Site
from stand import TCP_ESTABLISHED, Place, Program, Stop, snapshot, tcp_sockets, wait_listen

DURATION = 60
END_SECONDS = 20
# perftest looks at completions only: where ib_send_bw waits for a credit with nothing outstanding, it does
# not see that its peer has gone, and ends when its time is up.
SEND_DURATION = 15
SEND_END_SECONDS = 40


def start_pair(here, server, client):
    """Both sides, with their connections up; see stand.unless_refused() for why a client may be refused."""
    connections = 2 if server[0].startswith("ib_") else 1
    for attempt in range(4):
        port = PORTS.take()

        def fill(words):
            return [str(w).replace("PORT", str(port)).replace("ADDR", here.address) for w in words]

        passive = Program(here.server.argv(*fill(server)))
        wait_listen(passive, port)
        active = Program(here.client.argv(*fill(client)))
        end = time.monotonic() + 20
        while tcp_sockets(port, TCP_ESTABLISHED) < connections and time.monotonic() < end:
            if not active.running():
                break
            time.sleep(0.005)
        else:
            # for a moment a connection that is refused looks like one
            time.sleep(0.1 if connections > 1 else 0)
            if active.running() and tcp_sockets(port, TCP_ESTABLISHED) >= connections:
                return passive, active
            active.wait(5)
        if "REJECTED" not in active.text():
            break
        passive.kill()
        active.kill()
    raise Stop("the pair does not connect")


def kill_one(here, server, client, victim, rounds, seconds=END_SECONDS, expect=None):
    """
    @victim is "server" or "client"; the survivor must end by itself, not by a signal, and say what
    it saw (@expect).  The moments are random, the seed is printed with a failure.
    """
    seed = random.randrange(1 << 30)
    moments = random.Random(seed)
    before = snapshot()
    for index in range(rounds):
        passive, active = start_pair(here, server, client)
        time.sleep(moments.choice((0, 0.02, 0.3)) * moments.random())
        dead, survivor = (passive, active) if victim == "server" else (active, passive)
        if not dead.running():
            raise Stop(f"round {index}, seed {seed}: the {victim} had ended before it was killed")
        dead.kill()
        # erdma-run is replaced by the program, so the group is the program itself
        code = survivor.wait(seconds)
        other = "client" if victim == "server" else "server"
        if code is None:
            raise Stop(f"round {index}, seed {seed}: the {other} still runs {seconds} s after "
                       f"the {victim} was killed")
        # perftest crashes by itself when its second connection is refused
        if code < 0 and "REJECTED" not in survivor.text():
            raise Stop(f"round {index}, seed {seed}: the {other} ended by signal {-code}")
        if expect and not re.search(expect, survivor.text()):
            raise Stop(f"round {index}, seed {seed}: the {other} does not say {expect!r}")
        if index + 1 < rounds:
            Program.end_all()
    # what others of this machine make meanwhile has no mark of ours
    left = sorted(path for path in snapshot() - before
                  if re.search(r"erdma|uverbs|infiniband", os.path.basename(path)) and
                  not re.search(r"test|erdma-pci", os.path.basename(path)))
    if left:
        raise Stop(f"left behind: {', '.join(left[:5])}")


def idle_cpu(here):
    """A persistent rping server and the process of a client that is stopped use no CPU."""
    passive, active = start_pair(here, ["rping", "-s", "-P", "-a", "ADDR", "-p", "PORT"],
                                 ["rping", "-c", "-a", "ADDR", "-p", "PORT", "-C", "1000000"])
    time.sleep(1)
    if not passive.running() or not active.running():
        raise Stop("the pair has ended")
    active.signal(signal.SIGSTOP)
    time.sleep(0.3)

    def ticks():
        with open(f"/proc/{passive.pid}/stat", encoding="ascii") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    start = ticks()
    time.sleep(2)
    used = ticks() - start
    active.signal(signal.SIGCONT)
    if used > 2:
        raise Stop(f"the idle server used {used} ticks of CPU in 2 s")
    return f"{used} ticks in 2 s"


def cases(quick):
    found = []
    rounds = 2 if quick else 6
    for provider in ("ours", "system"):
        here = Site(provider, "127.0.0.1", Place(provider=provider), Place(provider=provider))
        rping_server = ["rping", "-s", "-a", "ADDR", "-p", "PORT"]
        rping_client = ["rping", "-c", "-a", "ADDR", "-p", "PORT", "-C", "100000000"]
        for victim in ("client", "server"):
            found.append(Case(f"kill -9 rping {victim} {provider}", kill_one, here, rping_server,
                              rping_client, victim, rounds))
            for program in ("ib_send_bw", "ib_write_bw", "ib_read_bw"):
                if quick and program != "ib_send_bw":
                    continue
                duration, seconds = ((SEND_DURATION, SEND_END_SECONDS) if program == "ib_send_bw"
                                     else (DURATION, END_SECONDS))
                common = [program, "-R", "-F", "-p", "PORT", "-D", duration]
                found.append(Case(f"kill -9 {program} {victim} {provider}", kill_one, here, common,
                                  common + ["ADDR"], victim, max(rounds // 2, 1), seconds))
        found.append(Case(f"idle rping server {provider}", idle_cpu, here))
    return found
