"""Counts the words of each regular file under DIR. `.ci/run` compares the result with the result of the example:

    python3 .ci/wordcount.py DIR     against     cargo run --release --example wordcount -- --json DIR

A word is a maximal run of ASCII letters, in lower case. Links are not followed. Files that are not regular are skipped.
Unreadable files and folders are counted. Each file is read as a whole, so no word is cut at a chunk boundary.
"""

import collections
import json
import os
import re
import stat
import sys

TOP = 20


def main(root):
    totals = {"files": 0, "unreadable": 0, "bytes": 0, "words": 0}
    counts = collections.Counter()

    def unreadable(_error):
        totals["unreadable"] += 1

    for path in regular_files(root, unreadable):
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError as error:
            unreadable(error)
            continue
        totals["files"] += 1
        totals["bytes"] += len(content)
        for word in re.finditer(rb"[A-Za-z]+", content):
            totals["words"] += 1
            counts[word.group().lower()] += 1

    top = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:TOP]
    totals["distinct"] = len(counts)
    totals["top"] = [[word.decode("ascii"), count] for word, count in top]
    print(json.dumps(totals, separators=(",", ":")))


def regular_files(root, unreadable):
    """Yields the paths of the regular files under root. If root is not a folder, yields root. Paths are bytes, so any file
    name works."""
    root = os.fsencode(root)
    if not os.path.isdir(root):
        yield root
        return
    for folder, _, names in os.walk(root, onerror=unreadable, followlinks=False):
        for name in names:
            path = os.path.join(folder, name)
            try:
                mode = os.lstat(path).st_mode
            except OSError as error:
                unreadable(error)
                continue
            if stat.S_ISREG(mode):
                yield path


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: wordcount.py DIR")
    main(sys.argv[1])
