#!/usr/bin/env python3
"""Compares the benchmark programs of two commits.

    compare.py instructions BASE NEW [ROW…]
    compare.py pairs BASE NEW [ROW…]

BASE and NEW are two programs `neighbours`, each built from one commit with `cargo build --release -p neighbours`. The
rows run on procession only.

`instructions` counts the instructions of each row with callgrind, on one worker. The count of an operation is the
difference between a run of 60,000 operations and a run of 10,000 operations, divided by 50,000. Therefore the count
includes neither the start of the program nor the construction of the runtime. A run also warms the runtime up with a
tenth of the operations, so the count of an operation is 10 % too high in both programs. A row in which another thread
takes part, such as `create-1-exit`, varies by 2 %. Each row is counted three times, and the median is used.

`pairs` runs the two programs in turn, 15 times, with the default number of workers. The result of a row is the median
of the ratios of the CPU time, with the 95 % confidence interval (bootstrap). Run `pairs` on a machine without other
load.

A row is *slower* if the ratio of its instructions, or the lower bound of the interval, is above 1.03. If a row is slower,
the exit status is 1.
"""
import concurrent.futures
import csv
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile

LIMIT = 1.03
ROWS = (
    "ping-pong ping-pong-100 ring counting create-1-exit throughput big chameneos fib yield spawn-outside spawn-inside "
    "chain call call-1000 crowd command-inline command-task command-async command-thread command-each sleep timer-fire "
    "timer-cancel link-unlink monitor-demonitor spawn-monitor restart server-cast server-call"
).split()
FEW, MANY, REPETITIONS, PAIRS = 10_000, 60_000, 3, 15


def collected(program, row, operations):
    """Returns the number of instructions of one run."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program, row, "--on", "procession"]
    command += ["--rounds", "1", "--here", "--workers", "1", "--ops", str(operations)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(re.search(r"Collected : (\d+)", run.stderr).group(1))


def instructions(base, new, rows):
    """Prints the instructions per operation. Returns the slower rows."""

    def count(program, row):
        runs = [(collected(program, row, MANY) - collected(program, row, FEW)) for _ in range(REPETITIONS)]
        return statistics.median(runs) / (MANY - FEW)

    slower = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = [(row, [pool.submit(count, program, row) for program in (base, new)]) for row in rows]
        for row, (before, after) in counts:
            ratio = after.result() / before.result()
            slower += [row] if ratio > LIMIT else []
            print(f"{row:18} {before.result():9.0f} {after.result():9.0f} {ratio:7.3f}", flush=True)
    return slower


def measured(program, rows):
    """Runs the rows once. Returns the CPU time, or the waiting time, of each row in ns per operation."""
    with tempfile.NamedTemporaryFile(suffix=".csv") as table:
        command = [program, *rows, "--on", "procession", "--rounds", "1", "--csv", table.name]
        subprocess.run(command, capture_output=True, check=True)
        with open(table.name, encoding="utf-8") as lines:
            found = [line for line in csv.DictReader(lines) if line["runtime"] == "procession"]
    return {(line["row"], line["quantity"]): float(line["ns"]) for line in found}


def interval(logarithms):
    """Returns the 95 % confidence interval of the median."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(logarithms, k=len(logarithms))) for _ in range(2_000))
    return math.exp(medians[50]), math.exp(medians[1_949])


def pairs(base, new, rows):
    """Prints the ratios of the CPU time. Returns the slower rows."""
    ratios = {}
    for pair in range(PAIRS):
        order = [base, new] if pair % 2 == 0 else [new, base]
        results = {program: measured(program, rows) for program in order}
        for row in results[base].keys() & results[new].keys():
            ratios.setdefault(row, []).append(math.log(results[new][row] / results[base][row]))
    slower = []
    for (row, quantity), logarithms in sorted(ratios.items()):
        low, high = interval(logarithms)
        slower += [row] if low > LIMIT else []
        ratio = math.exp(statistics.median(logarithms))
        print(f"{row:18} {quantity:8} {len(logarithms):3} pairs {ratio:7.3f} [{low:.3f}, {high:.3f}]", flush=True)
    return slower


def main():
    if len(sys.argv) < 4 or sys.argv[1] not in ("instructions", "pairs"):
        sys.exit(__doc__)
    compare = {"instructions": instructions, "pairs": pairs}[sys.argv[1]]
    slower = compare(sys.argv[2], sys.argv[3], sys.argv[4:] or ROWS)
    if slower:
        sys.exit(f"slower than {LIMIT}: {', '.join(slower)}")


if __name__ == "__main__":
    main()
