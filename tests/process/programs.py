#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Unmodified programs under erdma-run, with the distribution's provider: discovery, children, refusals.

usage: programs.py ERDMA_RUN [TEST...]
"""

import json
import os
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile

run = os.path.abspath(sys.argv[1])
SYSTEM = ["--provider", "system"]
failures = []
tests = []


def test(function):
    tests.append(function)
    return function


def start(*words, options=SYSTEM, code=0, env=None, user=None, **more):
    """Run a program under erdma-run; its standard output. @code is the exit code that must come out."""
    result = subprocess.run([run, *options, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            timeout=60, env=env, user=user, **more)
    if result.returncode != code:
        raise AssertionError(f"{' '.join(words)}: exit code {result.returncode}, not {code}\n"
                             f"{result.stdout}{result.stderr}")
    return result.stdout if code == 0 else result.stderr


def expect(text, *patterns):
    for pattern in patterns:
        if not re.search(pattern, text):
            raise AssertionError(f"no match for {pattern!r} in:\n{text}")


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise FileNotFoundError(program)


@test
def discovery_agrees_by_netlink_and_sysfs():
    need("ibv_devinfo")
    by_netlink = start("ibv_devinfo", "-v")
    by_sysfs = start("ibv_devinfo", "-v", options=[*SYSTEM, "--no-netlink"])
    expect(by_netlink, r"transport:\s+iWARP", r"vendor_id:\s+0x1ded", r"vendor_part_id:\s+4223",
           r"max_qp:\s+65535", r"atomic_cap:\s+ATOMIC_GLOB", r"link_layer:\s+Ethernet", r"fw_ver:\s+\d+\.\d+\.\d+")
    assert by_netlink == by_sysfs, "ibv_devinfo -v differs"
    assert start("ibv_devices") == start("ibv_devices", options=[*SYSTEM, "--no-netlink"])


@test
def netlink_is_what_was_asked():
    """The two ways above were really two: the second makes no netlink socket."""
    need("python3")
    program = "import socket\ntry: socket.socket(16, 3, 20); print('yes')\nexcept OSError as e: print(e.errno)"
    assert start("python3", "-c", program) == "yes\n"
    assert start("python3", "-c", program, options=[*SYSTEM, "--no-netlink"]) == "93\n"


@test
def iproute2():
    need("rdma")
    devices = json.loads(start("rdma", "-j", "dev"))
    assert devices[0]["ifname"] == "erdma_0" and devices[0]["node_type"] == "rnic", devices
    guid = open_in("/sys/class/infiniband/erdma_0/node_guid").strip()
    assert devices[0]["node_guid"] == guid, (devices, guid)
    expect(start("rdma", "link"), r"link erdma_0/1 state \w+ physical_state \w+ netdev \w+")
    expect(start("rdma", "system"), r"copy-on-fork on")
    expect(start("rdma", "res"), r"erdma_0: pd 0 cq 0 qp 0")


def open_in(path):
    return start("cat", path)


@test
def listings():
    expect(start("ls", "-lR", "/sys/class/infiniband/erdma_0/", "/dev/infiniband"), r"ports:", r"gid_attrs",
           r"crw-rw-rw- .* 231, 192 .* uverbs0")
    expect(start("ls", "/sys/class"), r"(?m)^infiniband$", r"(?m)^net$")
    expect(start("find", "/sys/class/infiniband/erdma_0/", "-name", "types"), r"ports/1/gid_attrs/types")
    expect(start("bash", "-c", "echo /sys/class/infiniband*/u*; read x < /sys/class/infiniband/erdma_0/node_type; echo $x"),
           r"/sys/class/infiniband_verbs/uverbs0", r"4: RNIC")
    expect(start("grep", "-r", "RNIC", "/sys/class/infiniband/erdma_0/"), r"node_type:4: RNIC")
    expect(start("stat", "/dev/infiniband/rdma_cm"), r"character special file")
    expect(start("readlink", "-f", "/sys/class/infiniband/erdma_0/device"), r"^/sys/devices/pcied0a:00/ed0a:00:00.0$")


@test
def working_directory():
    """In a directory that the kernel does not have, for the shell and what it starts."""
    out = start("sh", "-c", "cd /sys/class/infiniband && pwd -P && echo * && cat erdma_0/node_type && cd erdma_0/ports && ls"
                " && cd 1 && sh -c 'cat state; cd /etc; cat < /dev/null; sh -c pwd' && env -C /etc ls -d passwd")
    assert out == "/sys/class/infiniband\nerdma_0\n4: RNIC\n1\n4: ACTIVE\n/etc\npasswd\n", out
    if shutil.which("ibstatus"):
        expect(start("ibstatus"), r"Infiniband device 'erdma_0' port 1 status", r"state:\s+4: ACTIVE")


@test
def python_walks():
    program = """
import glob, os, pathlib
walked = sum(len(files) for _, _, files in os.walk('/sys/devices/pcied0a:00'))
assert walked > 25, walked
assert glob.glob('/sys/class/infiniband/*/ports/*/state') == ['/sys/class/infiniband/erdma_0/ports/1/state']
assert os.listdir('/dev/infiniband') == ['uverbs0', 'rdma_cm'] or sorted(os.listdir('/dev/infiniband')) == ['rdma_cm', 'uverbs0']
assert os.path.realpath('/sys/class/infiniband/erdma_0/device') == '/sys/devices/pcied0a:00/ed0a:00:00.0'
assert pathlib.Path('/dev/infiniband/uverbs0').is_char_device()
for entry in os.scandir('/sys/class/infiniband_verbs'):
    assert entry.is_dir() == (entry.name == 'uverbs0'), entry
print('good')
"""
    assert start("python3", "-c", program) == "good\n"


@test
def children_see_the_device():
    program = """
import os, subprocess, sys
show = ['cat', '/sys/class/infiniband/erdma_0/node_type']
for env in (None, {}, {'PATH': os.environ['PATH'], 'LD_PRELOAD': ''}):
    for close_fds in (True, False):
        out = subprocess.run(show, env=env, close_fds=close_fds, stdout=subprocess.PIPE, check=True).stdout
        assert out == b'4: RNIC\\n', (env, out)
assert os.popen('cat /sys/class/infiniband_verbs/abi_version').read() == '6\\n'
pid = os.posix_spawn('/bin/sh', ['sh', '-c', 'test -c /dev/infiniband/uverbs0'], {})
assert os.waitpid(pid, 0)[1] == 0
print('good')
"""
    assert start("python3", "-c", program) == "good\n"
    if shutil.which("ibv_devices"):
        expect(start("env", "-i", shutil.which("ibv_devices")), r"erdma_0")


@test
def provider_setting_reaches_children():
    with tempfile.TemporaryDirectory() as folder:
        lib = os.path.join(folder, "libother-rdmav34.so")
        open(lib, "w").close()
        out = start("env", "-i", "sh", "-c", "echo $RDMAV_DRIVERS", options=["--provider", lib])
        assert out == os.path.join(folder, "libother") + "\n", out


@test
def settings_are_strict():
    env = dict(os.environ, ERDMA_HOST="mode=ib", LD_PRELOAD=library())
    result = subprocess.run(["true"], env=env, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 2
    expect(result.stderr, r'bad ERDMA_HOST: mode is "ib"; give iwarp or roce')


def library():
    out = start("sh", "-c", "echo $LD_PRELOAD")
    return out.split(":")[0].strip()


@test
def refusals():
    with tempfile.TemporaryDirectory() as folder:
        def put(name, content, mode=0o755):
            path = os.path.join(folder, name)
            with open(path, "wb") as file:
                file.write(content)
            os.chmod(path, mode)
            return path

        expect(start("no-such-program", code=127), r"no-such-program is not found in PATH")
        expect(start("", code=127), r'"" is not found in PATH')
        expect(start("/no/such", code=127), r"/no/such cannot be run: No such file")
        expect(start(folder, code=126), r"is a directory")
        expect(start(put("plain", b"x", 0o644), code=126), r"is not executable")
        expect(start(put("junk", b"\x01\x02\x00\x03"), code=126), r"neither an ELF program nor a script")
        expect(start(put("orphan", b"#!/no/interpreter\n"), code=127), r"/no/interpreter cannot be run")
        assert start(put("script", b"#!/bin/sh\necho $1\n"), "fine") == "fine\n"
        assert start(put("env", b"#!/usr/bin/env sh\necho env\n")) == "env\n"
        assert start(put("bare", b"echo bare\n")) == "bare\n"

        with open("/proc/self/exe", "rb") as file:
            elf = bytearray(file.read(4096))
        small = bytearray(elf)
        small[4], small[18:20] = 1, struct.pack("<H", 3)
        expect(start(put("i386", small), code=126), r"is a program for 32-bit x86; this adapter is for")
        other = bytearray(elf)
        other[18:20] = struct.pack("<H", 243)
        expect(start(put("riscv", other), code=126), r"is a program for RISC-V")
        expect(start(put("short", elf[:40]), code=126), r"damaged ELF")
        expect(start(put("interp", b"#!" + os.path.join(folder, "riscv").encode() + b"\n"), code=126),
               r"which runs this script, is a program for RISC-V")

        static = os.path.join(folder, "static")
        source = put("static.c", b"int main(void) { return 0; }\n")
        if shutil.which("cc") and not subprocess.run(["cc", "-static", "-o", static, source], check=False,
                                                     stderr=subprocess.DEVNULL).returncode:
            expect(start(static, code=126), r"is statically linked")

        if os.getuid() == 0:
            nobody = 65534
            copy = shutil.copy(shutil.which("true"), os.path.join(folder, "setuid"))
            os.chown(copy, nobody, nobody)
            os.chmod(copy, 0o4755)
            expect(start(copy, code=126), r"is setuid \(to uid 65534\)")
            os.chmod(copy, 0o2755)
            expect(start(copy, code=126), r"is setgid")
            os.chmod(copy, 0o755)
            start(copy)
            try:
                os.setxattr(copy, "security.capability", struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0))
            except OSError:
                return
            os.chmod(folder, 0o755)
            expect(start(copy, code=126, user=nobody), r"has file capabilities")


@test
def programs_built_with_sanitizers():
    """Their run-time libraries must come before ours."""
    need("gcc")
    source = """
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void)
{
	char *buf = malloc(64);
	int fd = open("/sys/class/infiniband/erdma_0/node_type", O_RDONLY);
	ssize_t n = read(fd, buf, 64);

	printf("%.*s", (int)n, buf);
	free(buf);
	return close(fd) || close(open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC));
}
"""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.c")
        with open(path, "w", encoding="ascii") as file:
            file.write(source)
        for sanitizer in "address", "thread", "undefined":
            program = os.path.join(folder, sanitizer)
            if subprocess.run(["gcc", f"-fsanitize={sanitizer}", "-o", program, path], check=False,
                              stderr=subprocess.DEVNULL).returncode:
                continue
            assert start(program) == "4: RNIC\n", sanitizer


@test
def beside_librspreload():
    """Its sockets over RDMA run on the adapter, whose own sockets stay what they are."""
    need("gcc", "strace")
    lib = "/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so"
    if not os.path.exists(lib):
        raise FileNotFoundError(lib)
    source = """
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_port = htons(7951) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), peer;
	char buf[16] = "";

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (argc > 1) {
		if (connect(fd, (void *)&addr, sizeof(addr)) || send(fd, "hello", 5, 0) != 5 ||
		    recv(fd, buf, 5, 0) != 5)
			return 1;
		return close(fd) || strcmp(buf, "hello");
	}
	if (bind(fd, (void *)&addr, sizeof(addr)) || listen(fd, 1) || write(1, "up", 2) != 2)
		return 1;
	peer = accept(fd, NULL, NULL);
	if (recv(peer, buf, 5, 0) != 5 || send(peer, buf, 5, 0) != 5)
		return 1;
	recv(peer, buf, 1, 0);
	return close(peer);
}
"""
    with tempfile.TemporaryDirectory() as folder:
        program, trace = os.path.join(folder, "echo"), os.path.join(folder, "trace")
        with open(program + ".c", "w", encoding="ascii") as file:
            file.write(source)
        subprocess.run(["gcc", "-o", program, program + ".c"], check=True)
        env = dict(os.environ, LD_PRELOAD=lib)
        server = subprocess.Popen([run, *SYSTEM, program], env=env, stdout=subprocess.PIPE)
        try:
            assert server.stdout.read(2) == b"up"
            client = subprocess.run(["strace", "-f", "-o", trace, "env", f"LD_PRELOAD={lib}", run, *SYSTEM, program,
                                     "client"], timeout=30, check=False)
            assert client.returncode == 0, client.returncode
            assert server.wait(timeout=20) == 0
        finally:
            server.kill()
            server.stdout.close()
        with open(trace, encoding="utf-8", errors="replace") as file:
            assert "MPA ID Req Frame" in file.read(), "it went by plain TCP"


@test
def options_are_checked():
    expect(start("true", options=["--mode", "ib"], code=2), r'mode is "ib"; give iwarp or roce')
    expect(start("true", options=["--mulpdu", "7"], code=2), r'mulpdu is "7"')
    expect(start("true", options=["--device", "nope0"], code=2), r'--device "nope0": there is no interface')
    expect(start("true", options=["--device", "192.0.2.199"], code=2), r"none has this address")
    expect(start("true", options=["--provider", "/nowhere"], code=2), r'--provider "/nowhere": No such file')
    expect(start("true", options=["--provider", "/etc/passwd"], code=2), r"-rdmavNN.so")
    expect(start("true", options=["--bogus"], code=2), r"--help")
    expect(start(options=["--crc", "on"], code=2), r"no program is given")
    with tempfile.TemporaryDirectory() as folder:
        link = os.path.join(folder, "libmine-rdmav34.so")
        os.symlink("/etc/passwd", link)
        # libibverbs goes by the name of the link
        expect(start("true", options=["--provider", link]), r"^$")
        os.mkdir(os.path.join(folder, "empty"))
        expect(start("true", options=["--provider", os.path.join(folder, "empty") + "/"], code=2),
               r"there is no \S*/empty/+liberdma-rdmavNN.so")
    expect(start(options=["--version"]), r"^erdma-run \d+\.\d+")
    expect(start(options=["--help"]), r"usage: erdma-run")
    start("true", options=[*SYSTEM, "--device", "lo", "--device", "127.0.0.1,name=second"])


@test
def several_devices():
    need("ibv_devices")
    options = [*SYSTEM, "--device", "lo,name=first", "--device", "lo"]
    devices = start("ibv_devices", options=options)
    expect(devices, r"first\s+[0-9a-f]{16}", r"erdma_1\s+[0-9a-f]{16}")
    guids = re.findall(r"\s([0-9a-f]{16})", devices)
    assert len(set(guids)) == 2 and "0" * 16 not in guids, guids
    assert sorted(start("ibv_devices", options=[*options, "--no-netlink"]).split()) == sorted(devices.split())
    expect(start("ibv_devinfo", "-d", "erdma_1", options=options), r"hca_id:\s+erdma_1")


@test
def roce_identity():
    need("ibv_devinfo")
    out = start("ibv_devinfo", "-v", options=[*SYSTEM, "--mode", "roce"])
    expect(out, r"transport:\s+InfiniBand", r"GID\[\s*\d+\]:\s+::ffff:", r"RoCE v2", r"max_pkeys:\s+1")
    assert out == start("ibv_devinfo", "-v", options=[*SYSTEM, "--mode", "roce", "--no-netlink"])


@test
def plain_user_with_little_locked_memory():
    need("ibv_devinfo")
    if os.getuid() != 0:
        return
    if subprocess.run(["test", "-x", run], user=1000, group=1000, check=False).returncode:
        raise FileNotFoundError(f"a path to {run} for uid 1000")
    out = start("sh", "-c", "ulimit -l 64; id -u; exec ibv_devinfo -v", user=1000, group=1000, extra_groups=[])
    expect(out, r"^1000\n", r"hca_id:\s+erdma_0")


@test
def devices_by_address():
    """Each local address belongs to the device of its interface; the first device serves what is left."""
    need("unshare", "ip")
    if os.getuid() != 0:
        return
    program = """
import ctypes, socket, sys
cm = ctypes.CDLL('librdmacm.so.1', use_errno=True)
verbs = ctypes.CDLL('libibverbs.so.1')
verbs.ibv_get_device_name.restype = ctypes.c_char_p
verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
for host in sys.argv[1:]:
    made = ctypes.c_void_p()
    assert cm.rdma_create_id(None, ctypes.byref(made), None, 0x106) == 0
    if ':' in host:
        addr = bytes([10, 0, 0, 0, 0, 0, 0, 0]) + socket.inet_pton(socket.AF_INET6, host) + bytes(4)
    else:
        addr = bytes([2, 0, 0, 0]) + socket.inet_aton(host) + bytes(8)
    if cm.rdma_bind_addr(made, addr):
        print(host, 'errno', ctypes.get_errno())
        continue
    context = ctypes.cast(made, ctypes.POINTER(ctypes.c_void_p))[0]
    if not context:
        print(host, 'none')
        continue
    device = ctypes.cast(context, ctypes.POINTER(ctypes.c_void_p))[0]
    print(host, verbs.ibv_get_device_name(device).decode())
"""
    script = f"""
ip link set lo up
for i in a b; do
    ip link add host$i type veth peer name peer$i || exit 77
    ip link set host$i up; ip link set peer$i up
done
ip addr add 10.9.1.1/24 dev hosta; ip addr add 10.9.2.1/24 dev hostb; ip addr add fd09::1/64 dev hostb nodad
{run} --provider system --device hosta --device 10.9.2.1,name=second python3 -c "$PROGRAM" \
    10.9.1.1 10.9.2.1 fd09::1 127.0.0.1 ::1 0.0.0.0 10.9.3.1
"""
    out = subprocess.run(["unshare", "-n", "bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         text=True, timeout=60, env=dict(os.environ, PROGRAM=program), check=False)
    if out.returncode == 77:
        return
    assert out.stdout.splitlines() == [
        "10.9.1.1 erdma_0", "10.9.2.1 second", "fd09::1 second", "127.0.0.1 erdma_0", "::1 erdma_0",
        "0.0.0.0 none", "10.9.3.1 errno 19"], out.stdout


@test
def port_events():
    need("ibv_asyncwatch", "unshare", "ip")
    if os.getuid() != 0:
        return
    script = f"""
ip link add hostd0 type veth peer name hostd1 || exit 77
ip link set hostd0 up; ip link set hostd1 up
{run} --provider system --device hostd0 stdbuf -oL ibv_asyncwatch & pid=$!
sleep 1.5; ip link set hostd0 down; sleep 0.5; ip link set hostd0 up; sleep 0.5; ip link del hostd0; sleep 0.5
kill $pid
"""
    out = subprocess.run(["unshare", "-n", "bash", "-c", script], stdout=subprocess.PIPE, text=True, timeout=60,
                         check=False)
    if out.returncode == 77:
        return
    events = re.findall(r"event_type (\S+) \(\d+\), port 1", out.stdout)
    assert events == ["IBV_EVENT_PORT_ERR", "IBV_EVENT_PORT_ACTIVE", "IBV_EVENT_PORT_ERR"], out.stdout


@test
def too_few_descriptors():
    """However few a program may have: no crash, and a message that says what is missing."""
    need("ibv_devinfo", "prlimit")
    said = ""
    for limit in range(4, 16):
        child = subprocess.run([run, *SYSTEM, "prlimit", f"--nofile={limit}:{limit}", "ibv_devinfo"], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
        assert child.returncode >= 0, f"signal {-child.returncode} with {limit} descriptors"
        said += child.stderr
    expect(said, r"device erdma_0 cannot start: Too many open files")
    assert "Bad file descriptor" not in said, said


LOOPBACK_PAIR = r"""
#include <stdio.h>
#include <stdlib.h>
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

#define CHECK(x) do { if (!(x)) { perror(#x); exit(1); } } while (0)

static struct rdma_cm_event *next(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	CHECK(!rdma_get_cm_event(channel, &event));
	CHECK(event->event == type);
	return event;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 } };

	CHECK(!rdma_create_qp(id, NULL, &attr));
}

int main(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rdma_event_channel *ours = rdma_create_event_channel(), *theirs = rdma_create_event_channel();
	struct rdma_cm_id *listener, *client, *server;
	struct rdma_conn_param param = { 0 };
	struct rdma_cm_event *event;
	int i;

	CHECK(!rdma_create_id(theirs, &listener, NULL, RDMA_PS_TCP));
	CHECK(!rdma_bind_addr(listener, (struct sockaddr *)&addr));
	CHECK(!rdma_listen(listener, 1));
	addr.sin_port = rdma_get_src_port(listener);
	for (i = 0; i < 20; i++) {
		CHECK(!rdma_create_id(ours, &client, NULL, RDMA_PS_TCP));
		CHECK(!rdma_resolve_addr(client, NULL, (struct sockaddr *)&addr, 1000));
		rdma_ack_cm_event(next(ours, RDMA_CM_EVENT_ADDR_RESOLVED));
		CHECK(!rdma_resolve_route(client, 1000));
		rdma_ack_cm_event(next(ours, RDMA_CM_EVENT_ROUTE_RESOLVED));
		make_qp(client);
		CHECK(!rdma_connect(client, &param));
		event = next(theirs, RDMA_CM_EVENT_CONNECT_REQUEST);
		server = event->id;
		rdma_ack_cm_event(event);
		make_qp(server);
		CHECK(!rdma_accept(server, &param));
		rdma_ack_cm_event(next(ours, RDMA_CM_EVENT_ESTABLISHED));
		rdma_ack_cm_event(next(theirs, RDMA_CM_EVENT_ESTABLISHED));
		rdma_disconnect(client);
		rdma_ack_cm_event(next(theirs, RDMA_CM_EVENT_DISCONNECTED));
		rdma_destroy_qp(server);
		rdma_destroy_id(server);
		rdma_destroy_qp(client);
		rdma_destroy_id(client);
	}
	puts("twenty connections");
	return 0;
}
"""


@test
def thread_sanitizer():
    """A program that is built with it hears of its own races only."""
    need("gcc")
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "pair.c"), os.path.join(folder, "pair")
        with open(source, "w", encoding="utf-8") as file:
            file.write(LOOPBACK_PAIR)
        build = subprocess.run(["gcc", "-g", "-fsanitize=thread", source, "-o", program, "-lrdmacm", "-libverbs"],
                               stderr=subprocess.PIPE, text=True, check=False)
        if build.returncode and re.search(r"cannot find .*tsan", build.stderr):
            raise FileNotFoundError("libtsan")
        assert not build.returncode, build.stderr
        # Debian's provider destroys spinlocks that it holds. A warning gives exit code 66.
        env = {**os.environ, "TSAN_OPTIONS": "report_destroy_locked=0:detect_deadlocks=0"}
        expect(start(program, env=env), r"twenty connections")


@test
def nothing_is_left_behind():
    def files():
        return {path for top in ("/dev/shm", "/tmp", "/run") for path in os.listdir(top)}
    before = files()
    child = subprocess.Popen([run, *SYSTEM, "python3", "-c",
                              "import os,time; f=os.open('/dev/infiniband/uverbs0',2); "
                              "g=os.open('/dev/infiniband/rdma_cm',2); print('up',flush=True); time.sleep(60)"],
                             stdout=subprocess.PIPE)
    child.stdout.readline()
    child.kill()
    child.wait()
    left = {name for name in files() - before if "erdma" in name}
    assert not left, left
    assert not os.path.exists("/sys/class/infiniband/erdma_0")


def main():
    wanted = sys.argv[2:]
    for function in tests:
        if wanted and function.__name__ not in wanted:
            continue
        try:
            function()
            print(f"ok      {function.__name__}")
        except FileNotFoundError as missing:
            print(f"skipped {function.__name__}: {missing} is not here")
        except Exception as error:  # pylint: disable=broad-except
            failures.append(function.__name__)
            print(f"FAILED  {function.__name__}: {type(error).__name__}: {error}")
        sys.stdout.flush()
    return 1 if failures else 0


sys.exit(main())
