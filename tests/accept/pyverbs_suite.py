# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""
Runs rdma-core's Python suite and prints one line per test: "@@ Class.test outcome reason".

usage: pyverbs_suite.py FOLDER DEVICE [Class.test | -Class.test ...]: FOLDER holds the package "tests".
With names only those tests are run, or all but those with a minus sign. Modules for the hardware of
other makers are left out. A test that takes more than 30 s is an error.
"""

import importlib
import os
import random
import signal
import sys
import unittest

OTHER_MAKERS = ("test_mlx5", "test_efa", "test_cuda")
LIMIT = 30


def on_alarm(_number, _frame):
    raise TimeoutError(f"the test takes more than {LIMIT} s")


def randint_with_one_choice(low, high, draw=random.randint):
    """The suite draws a number of SGEs from 1 up to half the device's limit, which is 1 here."""
    return draw(low, max(low, high))


class Lines(unittest.TestResult):
    def say(self, test, outcome, reason=""):
        name = ".".join(test.id().split(".")[-2:])
        reason = " ".join(str(reason).split())[-160:]
        print(f"\n@@ {name} {outcome} {reason}", flush=True)

    def startTest(self, test):
        super().startTest(test)
        signal.alarm(LIMIT)

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)

    def addSuccess(self, test):
        self.say(test, "ok")

    def addSkip(self, test, reason):
        self.say(test, "skipped", reason)

    def addError(self, test, err):
        self.say(test, "error", f"{err[0].__name__}: {err[1]}")

    def addFailure(self, test, err):
        self.say(test, "failed", f"{err[0].__name__}: {err[1]}")


def tests_of(suite):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from tests_of(test)
        else:
            yield test


def main(folder, device, names):
    # without a number the suite takes an iWARP device's GID, of which half is zero, for none
    sys.argv = ["run_tests.py", "--dev", device, "--gid", "0"]
    sys.path.insert(0, folder)
    sys.path.insert(0, os.path.join(folder, "tests"))
    # the package's own __init__ loads all modules, those of other makers too
    parser = importlib.import_module("args_parser").parser
    parser.parse_args()
    random.randint = randint_with_one_choice
    signal.signal(signal.SIGALRM, on_alarm)
    package = os.path.join(folder, "tests")
    with open(os.path.join(package, "__init__.py"), "w", encoding="ascii"):
        pass
    only = tuple(name for name in names if not name.startswith("-"))
    without = tuple(name[1:] for name in names if name.startswith("-"))
    wanted = unittest.TestSuite()
    for file in sorted(os.listdir(package)):
        if file.startswith("test_") and file.endswith(".py") and not file.startswith(OTHER_MAKERS):
            module = importlib.import_module("tests." + file[:-3])
            for test in tests_of(unittest.defaultTestLoader.loadTestsFromModule(module)):
                if test.id().endswith(without):
                    continue
                if not only or test.id().endswith(only):
                    wanted.addTest(test)
    wanted.run(Lines())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
