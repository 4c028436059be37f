#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Unmodified programs on the user-MAD device: ibstat, two muxes with clients, and what is on the wire.

usage: programs.py BIN-FOLDER LOSSY-LIBRARY [--inside | TEST...]

What needs addresses or captures of its own runs in a network namespace (--inside), where the machine allows one.
"""

import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

bin_folder, lossy = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
run = os.path.join(bin_folder, "erdma-run")
SYSTEM = [run, "--provider", "system"]
outside, within = [], []
skipped = 0


class Skip(Exception):
    pass


def test(function):
    outside.append(function)
    return function


def inside(function):
    within.append(function)
    return function


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Skip(f"no {program} here")


def call(*words, code=0, **more):
    result = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100, **more)
    if code is not None and result.returncode != code:
        raise AssertionError(f"{' '.join(words)}: exit code {result.returncode}, not {code}\n"
                             f"{result.stdout}{result.stderr}")
    return result


def umad(where, *words, **more):
    return call(*SYSTEM, "--umad", where, *words, **more)


def expect(text, *patterns):
    for pattern in patterns:
        if not re.search(pattern, text):
            raise AssertionError(f"no match for {pattern!r} in:\n{text}")


def free_net():
    """Loopback addresses 127.x.y.1 and .2 that nobody has RoCE's port on."""
    for i in range(100):
        number = os.getpid() + i * 7919
        net = f"127.{1 + number // 250 % 250}.{1 + number % 250}"
        try:
            for host in (1, 2):
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                    probe.bind((f"{net}.{host}", 4791))
            return net
        except OSError:
            continue
    raise Skip("UDP port 4791 is in use on this machine")


class Mux:
    def __init__(self, folder, where, device, env=None):
        self.folder, self.device = folder, device
        self.prefix = os.path.join(folder, "mux")
        self.socket = f"{self.prefix}-{device}-1"
        conf = os.path.join(folder, "conf")
        with open(conf, "w") as file:
            file.write("[rule test]\ngids = 127.0.0.0/8, 10.0.0.0/8, fd00::/8\n")
        self.log = open(os.path.join(folder, device + ".log"), "w+")
        self.process = subprocess.Popen([*SYSTEM, "--umad", f"{where},name={device}",
                                         os.path.join(bin_folder, "rdmacm-mux"), "-d", device, "-s", self.prefix, "-c",
                                         conf], stderr=self.log, stdin=subprocess.DEVNULL, env=env)
        for _ in range(1200):
            if os.path.exists(self.socket):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError("the mux does not start:\n" + self.said())

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def ctl(self, *words):
        return call(os.path.join(bin_folder, "rdmacm-muxctl"), "-d", self.device, "-s", self.prefix, *words).stdout

    def __enter__(self):
        return self

    def __exit__(self, *reason):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.said()
        self.log.close()


def peer(*words):
    return [os.path.join(bin_folder, "cm_peer"), *words]


class Listener:
    def __init__(self, mux, address, *options):
        self.process = subprocess.Popen(peer("listen", mux.socket, address, *options), stdout=subprocess.PIPE, text=True)
        self.said = self.process.stdout.readline()
        assert "listening" in self.said, self.said

    def end(self):
        self.said += self.process.communicate(timeout=100)[0]
        assert self.process.returncode == 0, self.said
        return self.said


def connect(mux, own, other, *options):
    return call(*peer("connect", mux.socket, own, other, *options)).stdout


# ---------------------------------------------------------------------------- anywhere


@test
def options():
    expect(call(run, "--help").stdout, r"--umad WHERE")
    expect(umad("", "true", code=2).stderr, r"give an interface or an address")
    expect(umad("192.0.2.77", "true", code=2).stderr, r"none has this address")
    expect(umad("lo,name=erdma_0", "--device", "lo", "true", code=2).stderr, r"two devices are named")
    expect(umad("lo", "--umad", "lo,name=roce_0", "true", code=2).stderr, r"two devices are named")
    expect(umad("lo", "sh", "-c", "ls /dev/infiniband /sys/class/infiniband_mad").stdout, r"(?s)umad0\n.*umad0\n")
    # without the option nothing of it is there
    assert "umad" not in call(*SYSTEM, "ls", "/dev/infiniband", "/sys/class/infiniband_mad").stdout


@test
def ibstat():
    need("ibstat")
    expect(umad("127.0.0.1", "ibstat").stdout, r"CA 'roce_0'", r"State: Active", r"Link layer: Ethernet",
           r"Port GUID: 0x0000ffff7f000001")
    assert umad("127.0.0.1,name=mad", "ibstat", "-l").stdout == "mad\n"
    assert umad("127.0.0.1", "ibstat", "-p").stdout == "0x0000ffff7f000001\n"
    expect(umad("127.0.0.1", "--umad", "127.0.0.2", "ibstat", "roce_1").stdout, r"CA 'roce_1'",
           r"Port GUID: 0x0000ffff7f000002")
    # a program that wants QP 0 is told so, and ends by itself
    result = umad("127.0.0.1", "ibaddr", code=None)
    assert result.returncode > 0, result
    expect(result.stderr, r"register for mgmt 1 failed|client_register for mgmt 1 failed|Failed to open")


@test
def two_muxes():
    net = free_net()
    a, b = net + ".1", net + ".2"
    with tempfile.TemporaryDirectory() as folder, Mux(folder, a, "roce_a") as left, Mux(folder, b, "roce_b") as right:
        listener = Listener(right, b, "--count", "20")
        client = subprocess.Popen(peer("connect", left.socket, a, b, "--count", "20", "--hold"), stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        lines = []
        while not lines or "waiting" not in lines[-1]:
            lines.append(client.stdout.readline())
            assert lines[-1], lines
        sessions = left.ctl("sessions")
        assert len(re.findall(r"active +established", sessions)) == 20, sessions
        expect(right.ctl("sessions"), rf"passive .*::ffff:{b} +::ffff:{a}")
        client.communicate("", timeout=100)
        assert client.returncode == 0
        listener.end()
        # a refusal, and ends from the other side
        listener = Listener(right, b, "--reject")
        connect(left, a, b, "--refused", "28")
        listener.end()
        listener = Listener(left, a, "--end", "--count", "5")
        connect(right, b, a, "--count", "5")
        listener.end()
        # a second mux on the address says why it does not start
        second = umad(a + ",name=other", os.path.join(bin_folder, "rdmacm-mux"), "-d", "other", "-s",
                      os.path.join(folder, "second"), code=None)
        assert second.returncode != 0
        expect(second.stderr, r"is taken by another program")


@test
def lost_messages():
    net = free_net()
    a, b = net + ".1", net + ".2"
    env = dict(os.environ, LD_PRELOAD=lossy)
    with tempfile.TemporaryDirectory() as folder, Mux(folder, a, "roce_a", env) as left, \
            Mux(folder, b, "roce_b", env) as right:
        listener = Listener(right, b, "--count", "100")
        said = connect(left, a, b, "--count", "100")
        said += listener.end()
        repeated = len(re.findall("-> (REQ|REP|DREQ)", said)) - 300
        print(f"  {repeated} messages repeated")
        assert repeated > 0, "nothing was lost"
        assert len(re.findall("100 of 100", said)) == 2, said


# ---------------------------------------------------------------------------- in a network namespace


def network():
    """Two interfaces of one machine; what goes between their addresses goes over lo."""
    call("ip", "link", "set", "lo", "up")
    made = call("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1", code=None)
    if made.returncode:
        raise Skip("no veth interfaces here")
    for i in (0, 1):
        call("ip", "addr", "add", f"10.0.0.{i + 1}/24", "dev", f"v{i}")
        call("ip", "addr", "add", f"fd77::{i + 1}/64", "dev", f"v{i}", "nodad")
    call("ip", "addr", "add", "10.0.0.11/24", "dev", "v0")
    for i in (0, 1):
        call("ip", "link", "set", f"v{i}", "up")


class Capture(threading.Thread):
    """The IP datagrams with UDP that go over lo, also as a pcap file."""

    def __init__(self, path):
        super().__init__()
        self.path, self.seen, self.over = path, [], False
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind(("lo", 0))
        self.socket.settimeout(0.2)
        self.start()

    def run(self):
        with open(self.path, "wb") as file:
            file.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
            while True:
                try:
                    frame, where = self.socket.recvfrom(65536)
                except TimeoutError:
                    if self.over:
                        return
                    continue
                ip = frame[14:]
                if where[2] == socket.PACKET_OUTGOING or not ip or ip[9 if ip[0] >> 4 == 4 else 6] != 17:
                    continue
                self.seen.append(ip)
                file.write(struct.pack("<IIII", len(self.seen), 0, len(frame), len(frame)) + frame)

    def end(self):
        """What has been seen, when there is no more."""
        self.over = True
        self.join()
        return self.seen


def icrc(ip):
    """As an adapter computes it, over the headers that were really on the wire."""
    ip = bytearray(ip)
    if ip[0] >> 4 == 4:
        for at in (1, 8, 10, 11):
            ip[at] = 0xff
        udp = 20
    else:
        ip[0] |= 0x0f
        for at in (1, 2, 3, 7):
            ip[at] = 0xff
        udp = 40
    ip[udp + 6] = ip[udp + 7] = ip[udp + 8 + 4] = 0xff
    return zlib.crc32(b"\xff" * 8 + bytes(ip[:-4])), struct.unpack("<I", ip[-4:])[0]


def exchanges(folder):
    with Mux(folder, "v0", "roce_a") as left, Mux(folder, "v1", "roce_b") as right:
        said = call(os.path.join(bin_folder, "mux_lab"), left.socket, "10.0.0.1", "10.0.0.11", right.socket,
                    "10.0.0.2", code=None).stdout
        print(said)
        # how fast it answers is nothing to judge by on a machine that does other things too
        failures = [line for line in said.splitlines() if "FAIL" in line and "destination" not in line]
        assert "ok 100 connections" in said and not failures, said
        for own, other in (("10.0.0.1", "10.0.0.2"), ("fd77::1", "fd77::2")):
            listener = Listener(right, other, "--count", "10")
            connect(left, own, other, "--count", "10", "--paths")
            listener.end()
            # nobody has registered the address on the other side: its mux answers
            connect(left, own, other, "--refused", "8")


@inside
def wire():
    """All of CM between two muxes, captured; every ICRC is that of the packet, and tshark knows every message."""
    need("tshark")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "pcap")
        capture = Capture(path)
        try:
            exchanges(folder)
        finally:
            seen = capture.end()
        families = set()
        for ip in seen:
            want, got = icrc(ip)
            assert want == got, ip.hex()
            families.add(ip[0] >> 4)
        assert families == {4, 6}, families
        assert call("tshark", "-r", path, "-Y", "_ws.malformed || ip.checksum.status == 0").stdout == ""
        text = call("tshark", "-r", path).stdout
        expect(text, "CM: ConnectRequest", "CM: ConnectReply", "CM: ReadyToUse", "CM: DisconnectRequest",
               "CM: DisconnectReply", "CM: MsgRcptAck", "CM: ConnectReject", "CM: ServiceIDResReq")
        attributes = set(call("tshark", "-r", path, "-T", "fields", "-e", "infiniband.mad.attributeid").stdout.split())
        assert attributes == {f"0x{attr:04x}" for attr in range(0x10, 0x1d)}, attributes


@inside
def addresses_come_and_go():
    """An address that the interface gets later is bound and a GID; entries that stay keep their index."""
    program = """
import os, subprocess, sys, time
def table():
    gids = {}
    for i in range(128):
        gid = open(f'/sys/class/infiniband/roce_0/ports/1/gids/{i}').read().strip()
        if gid.strip('0:'):
            gids[gid] = i
    return gids
fd = os.open('/dev/infiniband/umad0', os.O_RDWR | os.O_NONBLOCK)
before = table()
assert '0000:0000:0000:0000:0000:ffff:0a00:0001' in before, before
subprocess.run(['ip', 'addr', 'add', '10.0.0.99/24', 'dev', 'v0'], check=True)
def bound(text):
    return text in open('/proc/net/udp').read()
for _ in range(1200):
    if bound('6300000A:12B7'):
        break
    time.sleep(0.05)
else:
    sys.exit('the new address is not bound')
after = table()
assert after['0000:0000:0000:0000:0000:ffff:0a00:0063'] not in before.values()
assert all(after[gid] == i for gid, i in before.items())
subprocess.run(['ip', 'addr', 'del', '10.0.0.99/24', 'dev', 'v0'], check=True)
for _ in range(1200):
    if not bound('6300000A:12B7'):
        break
    time.sleep(0.05)
else:
    sys.exit('the old address is still bound')
assert table() == before
os.close(fd)
assert not bound(':12B7'), 'a closed file leaves its sockets'
print('good')
"""
    assert umad("v0", "python3", "-c", program).stdout == "good\n"


@inside
def without_checksums():
    """A RoCE device sends no UDP checksum over IPv6; and any hop limit and traffic class comes through."""
    program = """
import fcntl, os, select, socket, struct, sys, zlib
fd = os.open('/dev/infiniband/umad0', os.O_RDWR | os.O_NONBLOCK)
fcntl.ioctl(fd, 0x1b03)
req = bytearray(28)
req[4], req[20], req[21], req[22] = 8, 1, 7, 2
fcntl.ioctl(fd, 0xc01c1b01, req)
out = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
out.setsockopt(socket.IPPROTO_UDP, 101, 1)
out.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, 0x28)
out.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 9)
out.bind(('fd77::2', 0))
own, to = (socket.inet_pton(socket.AF_INET6, a) for a in ('fd77::2', 'fd77::1'))
mad = bytes([1, 7, 2, 3]) + bytes(12) + bytes([0, 0x10]) + bytes(238)
pkt = bytes.fromhex('640 0ffff0000000100000000'.replace(' ', '')) + bytes.fromhex('8001000000000001') + mad
length = 8 + len(pkt) + 4
head = bytes.fromhex('6fffffff') + struct.pack('>HBB', length, 17, 255) + own + to
head += struct.pack('>HHHH', out.getsockname()[1], 4791, length, 0xffff)
crc = zlib.crc32(b'\\xff' * 8 + head + pkt[:4] + b'\\xff' + pkt[5:])
out.sendto(pkt + struct.pack('<I', crc), ('fd77::1', 4791))
assert select.select([fd], [], [], 60)[0], open('/sys/class/infiniband/roce_0/ports/1/hw_counters/icrc_errors').read()
got = os.read(fd, 400)
assert len(got) == 320 and got[64:] == mad
assert got[36:52] == own and got[34] == 9 and got[35] == 0x28, got[:64].hex()
print('good')
"""
    assert umad("v0", "python3", "-c", program).stdout == "good\n"


# ---------------------------------------------------------------------------- run them


def run_tests(tests):
    global skipped
    failed = 0
    for function in tests:
        try:
            function()
            print(f"ok {function.__name__}", flush=True)
        except Skip as reason:
            skipped += 1
            print(f"skip {function.__name__}: {reason}", flush=True)
        except Exception as error:
            failed += 1
            print(f"FAIL {function.__name__}: {error}", flush=True)
    return failed


def main():
    names = sys.argv[3:]
    if names == ["--inside"]:
        try:
            network()
        except (Skip, AssertionError) as reason:
            print(f"skip {len(within)} tests: {reason}")
            return 0
        return run_tests(within)
    failed = run_tests([f for f in outside if not names or f.__name__ in names])
    namespace = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    if not names or "--inside" in names:
        if shutil.which("unshare") and shutil.which("ip") and subprocess.run([*namespace, "true"]).returncode == 0:
            failed += subprocess.run([*namespace, sys.executable, __file__, bin_folder, lossy, "--inside"]).returncode
        else:
            print("skip what needs a network namespace")
    return failed


sys.exit(1 if main() else 0)
