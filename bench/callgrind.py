# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
"""Reads callgrind's output: what the functions of one object cost, with what they call elsewhere."""

import re


class Names:
    """Name compression: "(7) text" the first time, "(7)" from then on."""

    def __init__(self):
        self.known = {}

    def get(self, text):
        found = re.match(r"\((\d+)\)(?: (.*))?$", text)
        if not found:
            return text
        if found.group(2) is not None:
            self.known[found.group(1)] = found.group(2)
        return self.known.get(found.group(1), "?")


def own_cost(path, is_ours):
    """
    Instructions of the functions in the objects for which is_ours(name) is true, with the calls they
    make into other objects (memcpy, spin locks); and the same by function.
    """
    objects, functions = Names(), Names()
    here = there = function = ""
    by_function = {}
    call = False
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            line = line.rstrip("\n")
            key, _, value = line.partition("=")
            if key == "ob":
                here = there = objects.get(value)
            elif key == "fn":
                function = functions.get(value)
                there = here
            elif key == "cob":
                there = objects.get(value)
            elif key == "cfn":
                functions.get(value)
            elif key == "calls":
                call = True
            elif re.match(r"[+\-*\d]", line):
                words = line.split()
                cost = int(words[1]) if len(words) > 1 else 0
                # an inclusive cost counts only where it leaves the object
                if is_ours(here) and not (call and is_ours(there)):
                    by_function[function] = by_function.get(function, 0) + cost
                if call:
                    there = here
                call = False
    return sum(by_function.values()), by_function
