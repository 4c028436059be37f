# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""The matrix: which programs, with which options, from which place, and what they must print."""

import filecmp
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from stand import (Place, Ports, Program, Skip, Stop, finish, has_option, tcp_listens, unless_refused,
                   wait_listen)

# Several runs at a time must not meet.
PORTS = Ports(21000 + os.getpid() * 211 % 9000)
TIMEOUT = 150  # programs that wait by looking at memory are slow where others want the CPU
STREAM_SECONDS = 30
NETNS = (f"er-e2e-{os.getpid()}-a", f"er-e2e-{os.getpid()}-b")
NETNS_ADDR = ("10.77.0.1", "10.77.0.2")
NETNS_ADDR6 = ("fd00:77::1", "fd00:77::2")

# Races of the programs themselves, as their sources show: which cases, what the output then shows, how.
RACES = (
    (r"^riostream", r"riomap: Cannot allocate memory",
     "the client came between rlisten() and the option of the server that makes room for its mapping"),
    # perftest's client numbers its QPs as it connects them, its server as their requests come, and each
    # is a TCP connection of its own. The server's credits go by number, so to the wrong QP of the client,
    # and one that is told of more than it has sent computes an enormous window in use.
    (r"^ib_send_bw .*-q ", r"# still running",
     "connect requests overtook each other, and perftest's credits went to the wrong QPs"),
    # Older versions of rping's server (rdma-core 44; 56 is cured) have one place for the id of a request and
    # nothing that keeps the next request out of it, so two threads take one id, and the other client is
    # never answered.
    (r"^rping -P ", r"rdma_create_qp: Invalid argument|wait for CONNECT_REQUEST state",
     "the second of two requests took the first one's place in the server"),
)


class Case:
    def __init__(self, name, function, *args, **kwargs):
        self.name = name
        self.function = function
        self.args = args
        self.kwargs = kwargs

    def run(self):
        return self.function(*self.args, **self.kwargs)


# ---------------------------------------------------------------------------------- where


class Site:
    """A pair of places: the server's and the client's, and the address that leads to the server."""

    def __init__(self, name, address, server, client, address6=None):
        self.name = name
        self.address = address
        self.address6 = address6
        self.server = server
        self.client = client


def own_address():
    """An IPv4 address of this machine that is not a loopback one."""
    text = subprocess.run(["ip", "-4", "-o", "addr", "show", "scope", "global", "up"],
                          capture_output=True, text=True, check=False).stdout
    found = re.search(r"inet (\d+\.\d+\.\d+\.\d+)/", text)
    return found.group(1) if found else None


def netns_reason():
    """Why two network namespaces cannot be had, or None; makes them at the first call."""
    if os.geteuid():
        return "making network namespaces needs root"
    if not shutil.which("ip"):
        return "there is no ip program"
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    if NETNS[0] in listed.stdout:
        return None
    commands = [["ip", "netns", "add", NETNS[0]], ["ip", "netns", "add", NETNS[1]],
                ["ip", "link", "add", "er-e2e-va", "netns", NETNS[0], "type", "veth",
                 "peer", "name", "er-e2e-vb", "netns", NETNS[1]]]
    for namespace, device, address, address6 in zip(NETNS, ("er-e2e-va", "er-e2e-vb"),
                                                    NETNS_ADDR, NETNS_ADDR6):
        inside = ["ip", "-n", namespace]
        commands += [inside + ["addr", "add", address + "/24", "dev", device],
                     inside + ["addr", "add", address6 + "/64", "dev", device, "nodad"],
                     inside + ["link", "set", device, "up"], inside + ["link", "set", "lo", "up"]]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            clean_up()
            return f"{' '.join(command)}: {done.stderr.strip()}"
    return wait_carrier()


def wait_carrier():
    """The kernel takes up to a second to notice that a link has come up; why it has not, or None."""
    end = time.monotonic() + 10
    for namespace in NETNS:
        while "state UP" not in subprocess.run(["ip", "-n", namespace, "link", "show", "type", "veth"],
                                               capture_output=True, text=True, check=False).stdout:
            if time.monotonic() > end:
                clean_up()
                return f"the link in {namespace} does not come up"
            time.sleep(0.02)
    return None


def clean_up():
    if os.geteuid() == 0:
        for namespace in NETNS:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


def site(provider, user, where, mode=None):
    plain = user == "plain"
    server = dict(provider=provider, plain=plain, mode=mode)
    client = dict(server)
    address, address6 = "127.0.0.1", "::1"
    if where == "own":
        address, address6 = own_address() or "", None
    elif where == "netns":
        address, address6 = NETNS_ADDR[0], NETNS_ADDR6[0]
        server["netns"], client["netns"] = NETNS
    name = "-".join(word for word in (provider, user, where, mode) if word)
    return Site(name, address, Place(**server), Place(**client), address6)


def check_site(here):
    if here.server.netns:
        reason = netns_reason()
        if reason:
            raise Skip(reason)
    if not here.address:
        raise Skip("this machine has no other address than loopback")


# ---------------------------------------------------------------------------------- pairs


def pair(here, server, client, check=None, port=None, status=0, timeout=TIMEOUT, ready=True,
         server_ends=True, server_status=0):
    """
    Runs @server, and when it listens @client.  The words PORT and ADDR in both stand for the port
    and the server's address.  @check(server output, client output) says what is wrong, or None.
    """
    check_site(here)
    port = port or PORTS.take()

    def fill(words):
        return [str(w).replace("PORT", str(port)).replace("ADDR6", here.address6 or "")
                .replace("ADDR", here.address) for w in words]

    passive = Program(here.server.argv(*fill(server)))
    if ready:
        wait_listen(passive, port, here.server.netns)
    active = Program(here.client.argv(*fill(client)))
    finish(active, "client", timeout, status)
    if server_ends:
        finish(passive, "server", timeout, server_status)
    else:
        passive.signal(signal.SIGINT)
        if passive.wait(5) is None:
            passive.kill()
    wrong = check(passive.text(), active.text()) if check else None
    if wrong:
        raise Stop(wrong)
    return None


def holds(*patterns):
    """A check: the client's output matches each pattern."""

    def check(_server, client):
        for pattern in patterns:
            if not re.search(pattern, client, re.M):
                return f"the client's output does not show {pattern!r}"
        return None

    return check


# ---------------------------------------------------------------------------------- single programs


def alone(place, *words, patterns=(), status=0):
    program = Program(place.argv(*words))
    finish(program, words[0], TIMEOUT, status)
    text = program.text()
    for pattern in patterns:
        if not re.search(pattern, text, re.M):
            raise Stop(f"the output does not show {pattern!r}")


DEVINFO = (r"^hca_id:\s+erdma_0", r"vendor_id:\s+0x1ded", r"vendor_part_id:\s+4223",
           r"fw_ver:\s+\d+\.\d+\.\d+$", r"node_guid:\s+(?!0000:0000:0000:0000)[0-9a-f:]{19}",
           r"max_qp:\s+\d+", r"max_sge:\s+1$", r"state:\s+PORT_ACTIVE", r"link_layer:\s+Ethernet",
           r"num_comp_vectors:\s+\d+")


def devinfo(place, transport):
    alone(place, "ibv_devinfo", "-v", patterns=DEVINFO + (transport,))
    alone(place, "ibv_devinfo", "-d", "erdma_0", "-i", "1", patterns=(r"erdma_0",))
    alone(place, "ibv_devinfo", "-l", patterns=(r"^1 HCA", r"erdma_0"))
    alone(place, "ibv_devinfo", "-d", "no_such_device", status=255)


def asyncwatch(place):
    """It runs until it is interrupted; a terminal makes it print at once."""
    master, slave = pty.openpty()
    process = subprocess.Popen(place.argv("ibv_asyncwatch"), stdin=subprocess.DEVNULL, stdout=slave,
                               stderr=slave, start_new_session=True)
    os.close(slave)
    try:
        text, end = "", time.monotonic() + 10
        os.set_blocking(master, False)
        while "async event FD" not in text and time.monotonic() < end:
            try:
                text += os.read(master, 4096).decode(errors="replace")
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                break
        if not re.search(r"erdma_0: async event FD \d+", text):
            raise Stop(f"it says {text!r}")
        time.sleep(0.2)
        if process.poll() is not None:
            raise Stop(f"it ended by itself with {process.returncode}")
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        os.close(master)


# ---------------------------------------------------------------------------------- rping


def rping_lines(count):
    """Each ping, in order, on both sides; standard error may cut into a line of standard output."""

    def check(server, client):
        for who, text in (("server", server), ("client", client)):
            text = re.sub(r"(server|client) DISCONNECT EVENT\.\.\.\n|wait for \w+ state \d+\n", "", text)
            numbers = [int(number) for number in re.findall(r"ping data: rdma-ping-(\d+): ", text)]
            if numbers != list(range(count)):
                return f"the {who} printed {len(numbers)} of {count} pings"
        return None

    return check


def no_complaint(server, client):
    for who, text in (("server", server), ("client", client)):
        if re.search(r"error|fail|mismatch|corrupt", text, re.I):
            return f"the {who} complains"
    return None


def rping(here, *options, check=None, address="ADDR", bind=None, **more):
    pair(here, ["rping", "-s", "-a", bind or address, "-p", "PORT", *options],
         ["rping", "-c", "-a", address, "-p", "PORT", *options], check or no_complaint, **more)


def rping_ipv6(here):
    if not socket.has_ipv6 or not here.address6:
        raise Skip("no IPv6 address here")
    rping(here, "-C", "20", "-V", address="ADDR6")


def rping_wildcard(here):
    rping(here, "-C", "20", "-V", bind="0.0.0.0")


def rping_source(here):
    pair(here, ["rping", "-s", "-a", "ADDR", "-p", "PORT", "-C", "20", "-V"],
         ["rping", "-c", "-a", "ADDR", "-p", "PORT", "-C", "20", "-V", "-I", "ADDR"], no_complaint)


def rping_persistent(here):
    """Several clients, one after the other and at once; the server never ends by itself."""
    check_site(here)
    port = PORTS.take()
    server = Program(here.server.argv("rping", "-s", "-P", "-a", here.address, "-p", port))
    wait_listen(server, port, here.server.netns)
    argv = here.client.argv("rping", "-c", "-a", here.address, "-p", port, "-C", "50", "-V")
    for _ in range(2):
        finish(Program(argv), "client", TIMEOUT)
    together = [Program(argv) for _ in range(3)]
    for client in together:
        finish(client, "client", TIMEOUT)
    if not server.running():
        raise Stop("the persistent server has ended")


def rping_self_modified(here):
    """
    -q calls rdma_establish, which iWARP refuses (EINVAL), on real adapters too.  The client says so and
    then waits for ever for its own thread.
    """
    check_site(here)
    port = PORTS.take()
    server = Program(here.server.argv("rping", "-s", "-q", "-a", here.address, "-p", port, "-C", "5"))
    wait_listen(server, port, here.server.netns)
    client = Program(here.client.argv("rping", "-c", "-q", "-a", here.address, "-p", port, "-C", "5"))
    end = time.monotonic() + 10
    while "rdma_establish: Invalid argument" not in client.text():
        if time.monotonic() > end or client.wait(0.05) == 0:
            raise Stop("the client does not say that rdma_establish is refused")
    return "refused, as iWARP must"


# ---------------------------------------------------------------------------------- other rdma_cm programs


def ucmatose(here, *options, check=None, **more):
    pair(here, ["ucmatose", "-b", "ADDR", "-p", "PORT", *options],
         ["ucmatose", "-s", "ADDR", "-p", "PORT", *options],
         check or (lambda s, c: None if "return status 0" in s and "return status 0" in c
                   else "not both return status 0"), **more)


def cmtime(here, connections):
    """Its server waits for more clients until it is interrupted."""
    if has_option("cmtime", "socket baseline"):
        raise Skip("this cmtime wants a TCP socket on the port that it has given to rdma_cm")
    pair(here, ["cmtime", "-b", "ADDR", "-p", "PORT", "-c", connections],
         ["cmtime", "-s", "ADDR", "-p", "PORT", "-c", connections],
         holds(r"^connect\s*:\s+[\d.]+", r"^disconnect\s*:\s+[\d.]+"),
         server_ends=False)


def rstream(here, program, *options, check=None, server_options=None, timeout=TIMEOUT):
    pair(here, [program, "-b", "ADDR", "-p", "PORT",
                *(options if server_options is None else server_options)],
         [program, "-s", "ADDR", "-p", "PORT", *options],
         check or holds(r"[\d.]+[kmg]?\s+[\d.]+s\s+[\d.]+\s+[\d.]+"), timeout=timeout)


def rstream_async(here):
    """
    With -T a each receive is preceded by a poll for which POLLHUP is an error.  The server ends as soon as
    it has sent the last bytes, so the hang-up may come together with them: status 16, POLLHUP.
    """
    options = ["-p", "PORT", "-T", "a", "-T", "v", "-S", "1000", "-C", "20", "-I", "10"]
    try:
        pair(here, ["rstream", "-b", "ADDR", *options], ["rstream", "-s", "ADDR", *options],
             holds(r"[\d.]+[kmg]?\s+[\d.]+s\s+[\d.]+\s+[\d.]+"))
    except Stop as reason:
        server, client = Program.all[-2:]
        if client.process.returncode != 16 or server.wait(5) != 0 or "custom" not in server.text():
            raise reason
        return "the server's hang-up came with its last bytes"
    return None


def rcopy(here, size):
    check_site(here)
    port = PORTS.take()
    folder = tempfile.mkdtemp(prefix="er-e2e-")
    try:
        os.chmod(folder, 0o777)
        source, target = os.path.join(folder, "source"), os.path.join(folder, "target")
        with open(source, "wb") as file:
            left = size
            while left > 0:
                file.write(os.urandom(min(left, 1 << 20)))
                left -= 1 << 20
        os.chmod(source, 0o644)
        server = Program(here.server.argv("rcopy", "-p", port))
        wait_listen(server, port, here.server.netns)
        client = Program(here.client.argv("rcopy", source, f"{here.address}:{target}", "-p", port))
        finish(client, "client", TIMEOUT)
        if not os.path.exists(target) or not filecmp.cmp(source, target, shallow=False):
            raise Stop("the copy differs from the file")
        server.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rdma_server_client(here):
    pair(here, ["rdma_server", "-s", "ADDR", "-p", "PORT"], ["rdma_client", "-s", "ADDR", "-p", "PORT"],
         lambda s, c: None if re.search(r"rdma_server: end 0", s) and re.search(r"rdma_client: end 0", c)
         else "not both end with 0")


# ---------------------------------------------------------------------------------- perftest


def perftest_rows(text):
    """The numbers of the result table: a list of rows."""
    rows, inside = [], False
    for line in text.splitlines():
        if line.lstrip().startswith("#bytes"):
            inside = True
        elif line.startswith("---"):
            inside = False
        elif inside and re.match(r"^\s*\d+\s+\d+\s+[\d.]+", line):
            rows.append([float(word) for word in re.findall(r"-?[\d.]+(?:e[+-]?\d+)?", line)])
    return rows


def perftest_check(program, rows):
    bandwidth = program.endswith("_bw")

    def check(_server, client):
        found = perftest_rows(client)
        if len(found) != rows:
            return f"the table has {len(found)} rows, expected {rows}"
        for row in found:
            if len(row) < 4:
                return f"the row of {row[0]:.0f} bytes is short"
            value = row[3] if bandwidth else row[4]
            # a few bytes at a time can be 0.00 MB/s on a busy machine
            if value <= 0 and (not bandwidth or row[0] >= 4096):
                return f"the row of {row[0]:.0f} bytes says {value}"
        return None

    return check


def perftest(here, program, *options, rows=1, cm=True, timeout=TIMEOUT, **more):
    common = [program, *(["-R"] if cm else []), "-F", "-p", "PORT", *options]

    def run():
        pair(here, common, [*common, "ADDR"], perftest_check(program, rows), timeout=timeout, **more)

    _, late = unless_refused(run, 10 if cm else 1)
    return f"the server was late to listen {late} times" if late else None


def devices(here):
    """Chosen by interface, by address, and several at once."""
    address = own_address()
    if not address:
        raise Skip("this machine has no other address than loopback")
    line = subprocess.run(["ip", "-o", "-4", "addr", "show", "to", address], capture_output=True, text=True,
                          check=False).stdout
    interface = line.split()[1]

    def names(*options):
        program = Program(Place(provider=here.client.provider, extra=options).argv("ibv_devices"))
        finish(program, "ibv_devices", TIMEOUT)
        return re.findall(r"^\s+(\S+)\s+[0-9a-f]{16}$", program.text(), re.M)

    for options, want in ((("--device", interface), ["erdma_0"]),
                          (("--device", f"{address},name=erdma_7"), ["erdma_7"]),
                          (("--device", interface, "--device", "lo,name=second"),
                           ["erdma_0", "second"])):
        if names(*options) != want:
            raise Stop(f"{' '.join(options)}: {names(*options)}, expected {want}")
    two = Place(provider=here.client.provider, extra=("--device", interface, "--device", "lo,name=second"))
    there = Site(here.name, address, two, two)
    rping(there, "-C", "20", "-V")
    perftest(Site(here.name, "127.0.0.1", two, two), "ib_write_bw", "-n", "100", "-d", "second")


def no_such_device(here):
    program = Program(Place(provider=here.client.provider, extra=("--device", "nosuch0")).argv("true"))
    finish(program, "erdma-run", TIMEOUT, 2)
    if "nosuch0" not in program.text():
        raise Stop("the message does not name the interface")


def perftest_refused(here, program, *options, text, cm=True):
    """Expected not to run; the reason is in the case's name and here."""
    check_site(here)
    port = PORTS.take()
    common = [program, *(["-R"] if cm else []), "-F", "-p", port, *options]
    server = Program(here.server.argv(*common))
    end = time.monotonic() + 5
    while server.running() and not tcp_listens(port, here.server.netns) and time.monotonic() < end:
        time.sleep(0.02)
    if server.running():
        client = Program(here.client.argv(*common, here.address))
        code = client.wait(TIMEOUT)
        if code is None:
            raise Stop("the client hangs")
        output = client.text() + server.text()
    else:
        code, output = server.process.returncode, server.text()
    if code == 0:
        raise Stop("it succeeds")
    if not re.search(text, output):
        raise Stop(f"the output does not show {text!r}")
    return "refused, as expected"


def inline(here, program):
    """Newer versions know the device by its part number, and use 96 bytes."""

    def check(server, client):
        if "Max inline data : 96[B]" not in client and "Device not recognized" not in client:
            return "neither inline data nor the message that it is switched off"
        return perftest_check(program, 1)(server, client)

    common = [program, "-R", "-F", "-p", "PORT", "-I", "96", "-s", "64", "-n", "1000"]
    pair(here, common, [*common, "ADDR"], check)


def lat_events(here, program):
    """
    ib_read_lat and ib_send_lat arm the CQ before they poll it.  The completion that is still there
    raises the next event at once, as this device arms.  After that event they poll once, find nothing,
    and go on all the same: they post until their send queue of one is full, or judge a work completion
    that they never got.  So both outcomes are right; what must not happen is that one of them sleeps.
    """
    check_site(here)
    port = PORTS.take()
    common = [program, "-R", "-F", "-p", port, "-e", "-n", "300"]
    server = Program(here.server.argv(*common))
    wait_listen(server, port, here.server.netns)
    client = Program(here.client.argv(*common, here.address))
    code = client.wait(TIMEOUT)
    if code is None:
        raise Stop("the client hangs")
    text = client.text() + server.text()
    if code and not re.search(r"Couldn't post send|Completion with error|Failed status", text):
        raise Stop(f"the client ended with {code}")
    if server.wait(TIMEOUT) is None:
        raise Stop("the server hangs")
    return "ran through" if code == 0 else "it went on after an event without a completion, as expected"


def stream_all(here, program):
    """
    Each size in turn, until the time is up: the programs wait by looking at memory, and where others
    want the CPU each of the 200,000 transfers of a size may take two time slices.
    """
    check_site(here)
    port = PORTS.take()
    common = ["-p", port, "-T", "v", "-S", "all"]
    server = Program(here.server.argv("stdbuf", "-oL", program, "-b", here.address, *common))
    wait_listen(server, port, here.server.netns)
    client = Program(here.client.argv("stdbuf", "-oL", program, "-s", here.address, *common))
    code = client.wait(STREAM_SECONDS)
    rows = re.findall(r"^\d+[km]?_(?:lat|bw)\s.*\d\s*$", client.text(), re.M)
    if code not in (None, 0):
        raise Stop(f"the client ended with {code} after {len(rows)} tests")
    if re.search(r"data verification failed|error", client.text() + server.text(), re.I):
        raise Stop("the programs complain")
    if code is None and not rows:
        raise Skip(f"this machine is too busy: not one size in {STREAM_SECONDS} s")
    return f"all {len(rows)} tests" if code == 0 else f"{len(rows)} tests in {STREAM_SECONDS} s"


def has_atomics(place):
    program = Program(place.argv("ibv_devinfo", "-v"))
    finish(program, "ibv_devinfo", TIMEOUT)
    found = re.search(r"atomic_cap:\s+(\w+)", program.text())
    return bool(found) and found.group(1) != "ATOMIC_NONE"


def atomics(here, program, *options):
    check_site(here)
    if not has_atomics(here.client):
        raise Skip("the device has no atomics")
    perftest(here, program, *options)


def with_immediate(here):
    if not has_option("ib_write_bw", "--write_with_imm"):
        raise Skip("this perftest has no --write_with_imm")
    perftest(here, "ib_write_bw", "--write_with_imm", "-n", "500")


# ---------------------------------------------------------------------------------- the matrix


ALL_SIZES = 23  # 2 to 2^23


def discovery(here, transport):
    place = here.client
    return [
        Case(f"ibv_devices {here.name}", alone, place, "ibv_devices",
             patterns=(r"erdma_0\s+[0-9a-f]{16}",)),
        Case(f"ibv_devinfo {here.name}", devinfo, place, transport),
        Case(f"ibv_asyncwatch {here.name}", asyncwatch, place),
        Case(f"erdma-run --device {here.name}", devices, here),
        Case(f"erdma-run --device nosuch0 {here.name}", no_such_device, here),
    ]


def core(here):
    """One run of each kind: for every place."""
    tag = here.name
    return [
        Case(f"rping -V {tag}", rping, here, "-C", "100", "-V"),
        Case(f"ucmatose {tag}", ucmatose, here, "-C", "50"),
        Case(f"cmtime -c 50 {tag}", cmtime, here, 50),
        Case(f"rstream {tag}", rstream, here, "rstream", "-T", "v", "-S", "10000", "-C", "10", "-I", "5"),
        Case(f"riostream {tag}", rstream, here, "riostream", "-T", "v", "-S", "10000", "-I", "20"),
        Case(f"rcopy {tag}", rcopy, here, 3_000_001),
        Case(f"rdma_server {tag}", rdma_server_client, here),
        Case(f"ib_write_bw {tag}", perftest, here, "ib_write_bw", "-n", "1000"),
        Case(f"ib_read_bw {tag}", perftest, here, "ib_read_bw", "-n", "1000"),
        Case(f"ib_send_bw {tag}", perftest, here, "ib_send_bw", "-n", "1000"),
        Case(f"ib_write_lat {tag}", perftest, here, "ib_write_lat", "-n", "1000"),
        Case(f"ib_read_lat {tag}", perftest, here, "ib_read_lat", "-n", "1000"),
        Case(f"ib_send_lat {tag}", perftest, here, "ib_send_lat", "-n", "1000"),
        Case(f"ib_send_lat -e {tag}", lat_events, here, "ib_send_lat"),
    ]


def full(here):
    """All options, in one place."""
    tag = here.name
    found = [
        Case(f"rping -C 1000 -v {tag}", rping, here, "-C", "1000", "-v", check=rping_lines(1000)),
        Case(f"rping -C 10 -v -d {tag}", rping, here, "-C", "10", "-v", "-V", "-d",
             check=lambda s, c: None if "cq completion failed" not in s + c else "a completion failed"),
        Case(f"rping -C 1000 -V {tag}", rping, here, "-C", "1000", "-V"),
        Case(f"rping -S 65535 {tag}", rping, here, "-C", "100", "-V", "-S", "65535"),
        Case(f"rping -S 100 {tag}", rping, here, "-C", "100", "-V", "-S", "100"),
        Case(f"rping -a ipv6 {tag}", rping_ipv6, here),
        Case(f"rping -a 0.0.0.0 {tag}", rping_wildcard, here),
        Case(f"rping -I {tag}", rping_source, here),
        Case(f"rping -P {tag}", rping_persistent, here),
        Case(f"rping -q (refused: no rdma_establish on iWARP) {tag}", rping_self_modified, here),
        Case(f"ucmatose -C 1000 {tag}", ucmatose, here, "-C", "1000"),
        Case(f"ucmatose -c 10 -m {tag}", ucmatose, here, "-c", "10", "-C", "20", "-m"),
        Case(f"ucmatose -S 100000 {tag}", ucmatose, here, "-C", "50", "-S", "100000"),
        Case(f"ucmatose -t 8 -f ip {tag}", ucmatose, here, "-C", "5", "-t", "8", "-f", "ip"),
        Case(f"cmtime -c 1000 {tag}", cmtime, here, 1000),
        *(Case(f"rstream -S {size} {tag}", rstream, here, "rstream", "-T", "v", "-S", size, "-C", count,
               "-I", "5") for size, count in ((1, 500), (64, 500), (4096, 200), (65536, 50),
                                              (1048576, 5), (6000000, 2))),
        Case(f"rstream -T b {tag}", rstream, here, "rstream", "-T", "b", "-T", "v", "-S", "65536",
             "-C", "20", "-I", "5"),
        Case(f"rstream -T n {tag}", rstream, here, "rstream", "-T", "n", "-T", "v", "-S", "1000",
             "-C", "20", "-I", "10"),
        Case(f"rstream -T a {tag}", rstream_async, here),
        Case(f"rstream -T r {tag}", rstream, here, "rstream", "-T", "r", "-T", "v", "-S", "1000",
             "-C", "20", "-I", "10", server_options=("-T", "v", "-S", "1000", "-C", "20", "-I", "10")),
        Case(f"rstream -B -i {tag}", rstream, here, "rstream", "-B", "16384", "-i", "64", "-T", "v",
             "-S", "5000", "-C", "20", "-I", "10"),
        *(Case(f"riostream -S {size} {tag}", rstream, here, "riostream", "-T", "v", "-S", size, "-I",
               count) for size, count in ((64, 200), (65536, 20), (1048576, 4))),
        Case(f"riostream -T n {tag}", rstream, here, "riostream", "-T", "n", "-T", "v", "-S", "4096",
             "-I", "50"),
        *(Case(f"{program} -S all {tag}", stream_all, here, program)
          for program in ("rstream", "riostream") if here.server.provider == "ours"),
        Case(f"rcopy 40 MB {tag}", rcopy, here, 40_000_003),
    ]
    for kind in ("write", "read", "send"):
        bw, lat = f"ib_{kind}_bw", f"ib_{kind}_lat"
        found += [
            Case(f"{bw} -a {tag}", perftest, here, bw, "-a", "-n", "50", rows=ALL_SIZES),
            Case(f"{lat} -a {tag}", perftest, here, lat, "-a", "-n", "20", rows=ALL_SIZES),
            Case(f"{bw} -b {tag}", perftest, here, bw, "-b", "-n", "500"),
            Case(f"{bw} -q 16 {tag}", perftest, here, bw, "-q", "16", "-n", "100"),
            # A number of iterations that is no multiple of the CQ moderation makes ib_send_bw count
            # its last completions twice, and with credits (iWARP) and many QPs stop before its end.
            Case(f"{bw} -q 256 {tag}", perftest, here, bw, "-q", "256", "-n", "32", "-s", "4096",
                 "-t", "16", *(["-r", "16"] if kind == "send" else [])),
            Case(f"{bw} -q 1024 {tag}", perftest, here, bw, "-q", "1024", "-n", "16", "-s", "1024",
                 "-t", "8", *(["-r", "8"] if kind == "send" else [])),
            Case(f"{bw} -t 1 {tag}", perftest, here, bw, "-t", "1", "-n", "200"),
            Case(f"{bw} -t 1024 {tag}", perftest, here, bw, "-t", "1024", "-n", "2000", "-s", "4096"),
            Case(f"{bw} -l 16 {tag}", perftest, here, bw, "-l", "16", "-n", "1600", "-s", "1024"),
            Case(f"{bw} -D 3 {tag}", perftest, here, bw, "-D", "3", "-f", "1"),
            Case(f"{lat} -e (may go on without a completion) {tag}", lat_events, here, lat)
            if kind != "write" else
            Case(f"{lat} -e (refused: its parser has no -e) {tag}", perftest_refused, here, lat, "-e",
                 text=r"invalid option|Event"),
        ]
    found += [
        Case(f"ib_read_bw -e {tag}", perftest, here, "ib_read_bw", "-e", "-n", "500"),
        # Its credits on iWARP deadlock with event mode and moderation: one event for a whole window
        # that the peer's credits stop from filling. -Q 1 avoids it.
        Case(f"ib_send_bw -e -Q 1 {tag}", perftest, here, "ib_send_bw", "-e", "-Q", "1", "-n", "500"),
        Case(f"ib_write_bw -e (refused: its parser has no -e) {tag}", perftest_refused, here,
             "ib_write_bw", "-e", text=r"invalid option|Event"),
        # This perftest knows inline data of listed devices only, and switches it off for others.
        Case(f"ib_write_bw -I 96 (switched off by perftest) {tag}", inline, here, "ib_write_bw"),
        Case(f"ib_send_lat -I 96 (switched off by perftest) {tag}", inline, here, "ib_send_lat"),
        Case(f"ib_send_bw -r 8 {tag}", perftest, here, "ib_send_bw", "-r", "8", "-n", "500"),
        Case(f"ib_send_bw -r 4096 -t 2048 {tag}", perftest, here, "ib_send_bw", "-r", "4096", "-t",
             "2048", "-n", "4000", "-s", "1024"),
        Case(f"ib_write_bw --write_with_imm {tag}", with_immediate, here),
        Case(f"ib_write_bw -s 8388608 {tag}", perftest, here, "ib_write_bw", "-s", "8388608", "-n", "20"),
        Case(f"ib_read_bw -o 1 {tag}", perftest, here, "ib_read_bw", "-o", "1", "-n", "200"),
        Case(f"ib_write_bw --mr_per_qp -q 4 {tag}", perftest, here, "ib_write_bw", "--mr_per_qp", "-q",
             "4", "-n", "200"),
        Case(f"ib_send_bw -b -q 16 {tag}", perftest, here, "ib_send_bw", "-b", "-q", "16", "-n", "50",
             "-s", "8192"),
        Case(f"ib_write_bw (refused without -R: no RTS by modify_qp on iWARP) {tag}",
             perftest_refused, here, "ib_write_bw", "-n", "100", cm=False,
             text=r"Failed to modify QP.* to RTS|Unable to Connect"),
        Case(f"ib_atomic_bw {tag}", atomics, here, "ib_atomic_bw", "-n", "1000"),
        Case(f"ib_atomic_lat {tag}", atomics, here, "ib_atomic_lat", "-n", "1000"),
        Case(f"ib_atomic_bw -A CMP_AND_SWAP {tag}", atomics, here, "ib_atomic_bw", "-A",
             "CMP_AND_SWAP", "-n", "500"),
    ]
    return found


def mixed(first, second):
    """The server with one provider, the client with the other: they meet on the wire."""
    here = Site(f"{first}-with-{second}", "127.0.0.1", Place(provider=first), Place(provider=second))
    return [
        Case(f"rping -V {here.name}", rping, here, "-C", "100", "-V"),
        Case(f"ib_send_bw {here.name}", perftest, here, "ib_send_bw", "-n", "500"),
        Case(f"ib_write_lat {here.name}", perftest, here, "ib_write_lat", "-n", "500"),
        Case(f"ib_read_bw {here.name}", perftest, here, "ib_read_bw", "-n", "500"),
    ]


def pingpong(here, *options):
    port = PORTS.take()
    pair(here, ["ibv_rc_pingpong", "-p", "PORT", *options],
         ["ibv_rc_pingpong", "-p", "PORT", *options, "ADDR"],
         holds(r"\d+ bytes in [\d.]+ seconds", r"\d+ iters in [\d.]+ seconds"), port=port)


def roce(here, quick):
    tag = here.name
    found = [
        Case(f"ibv_devinfo {tag}", devinfo, here.client, r"transport:\s+InfiniBand"),
        Case(f"ibv_rc_pingpong {tag}", pingpong, here, "-g", "0"),
        Case(f"ib_write_bw without -R {tag}", perftest, here, "ib_write_bw", "-n", "500", cm=False),
        Case(f"ib_send_lat without -R {tag}", perftest, here, "ib_send_lat", "-n", "500", cm=False),
    ]
    if quick:
        return found
    found += [
        Case(f"ibv_rc_pingpong -e {tag}", pingpong, here, "-g", "0", "-e"),
        Case(f"ibv_rc_pingpong -c -s 100000 {tag}", pingpong, here, "-g", "0", "-c", "-s", "100000",
             "-n", "100"),
        Case(f"ib_read_bw without -R {tag}", perftest, here, "ib_read_bw", "-n", "500", cm=False),
        Case(f"ib_send_bw without -R {tag}", perftest, here, "ib_send_bw", "-n", "500", cm=False),
        Case(f"ib_write_lat without -R {tag}", perftest, here, "ib_write_lat", "-n", "500", cm=False),
        Case(f"ib_read_lat without -R {tag}", perftest, here, "ib_read_lat", "-n", "500", cm=False),
        Case(f"ib_write_bw -q 16 without -R {tag}", perftest, here, "ib_write_bw", "-q", "16", "-n",
             "100", cm=False),
        Case(f"ib_write_bw -a without -R {tag}", perftest, here, "ib_write_bw", "-a", "-n", "20",
             cm=False, rows=ALL_SIZES),
        Case(f"ib_send_bw -b without -R {tag}", perftest, here, "ib_send_bw", "-b", "-n", "300",
             cm=False),
    ]
    return found


IWARP = r"transport:\s+iWARP \(1\)"


def programs(quick):
    found = []
    for provider in ("ours", "system"):
        for user in ("root", "plain"):
            loopback = site(provider, user, "loopback")
            found += discovery(loopback, IWARP)
            if quick:
                found += core(loopback) if user == "root" else core(loopback)[:1]
                continue
            found += core(loopback)
            found += core(site(provider, user, "own"))
            found += core(site(provider, user, "netns"))
        if not quick:
            found += full(site(provider, "root", "loopback"))
        found += roce(site(provider, "plain" if provider == "ours" else "root", "loopback", "roce"),
                      quick)
        if not quick:
            found += roce(site(provider, "root", "netns", "roce"), True)[1:]
    found += mixed("ours", "system")
    if not quick:
        found += mixed("system", "ours")
    return found
