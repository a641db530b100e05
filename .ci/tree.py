"""Creates a folder of files that are difficult for a word counter:  python3 .ci/tree.py DIR"""

import os
import socket
import sys

# Size of the blocks that the example reads.
CHUNK = 64 * 1024


def main(root):
    root = os.fsencode(root)
    os.mkdir(root)

    def write(name, content):
        path = os.path.join(root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)

    # Words that end at most three bytes before or after the end of a chunk.
    for chunks in (1, 2, 3):
        for off in range(-3, 4):
            size = chunks * CHUNK + off
            write(b"edge/run-%d%+d" % (chunks, off), (b"Az" * size)[:size])
            write(b"edge/end-%d%+d" % (chunks, off), b" " * (size - 4) + b"tail")
            write(b"edge/cut-%d%+d" % (chunks, off), b"-" * (size - 5) + b"Severed parts")
            write(b"edge/gap-%d%+d" % (chunks, off), (b"x" * size)[:-1] + b" y")
    for length in range(1, 12):
        # Each chunk ends at another position within a word.
        write(b"edge/words-%d" % length, (b"abcdefghijk"[:length] + b"\n") * (3 * CHUNK // (length + 1)))
    write(b"one-word", b"Pneumonoultramicroscopic" * 20_000)

    for number in range(3):
        write(b"empty-%d" % number, b"")
    os.makedirs(os.path.join(root, b"empty-folder", b"within"))
    write(b"bytes/all", bytes(range(256)) * 1_000)
    write(b"bytes/around-letters", b"@AZ[`az{/09:" * 500)
    write(b"bytes/latin-1", "Gr\u00fc\u00dfe, na\u00efve caf\u00e9s".encode("latin-1") * 100)
    write(b"bytes/utf-8", "Grüße ΑΒΓ naïve Kelvin \u212a ſ".encode() * 100)
    write(b"bytes/utf-16", "wide words\r\n".encode("utf-16") * 100)
    write(b"bytes/zeros", b"\0" * (CHUNK + 1) + b"after\0zeros")
    write(b"bytes/lines", b"don't Don'T DON'T\r\n\tx1y2z3_a-b\n" * 200)
    # Words with equal counts. The list of the most frequent words ends between these words.
    write(b"ties", b" ".join(bytes([97 + n % 26, 97 + n // 26]) for n in range(600)) * 50)

    names = [b"-rf", b"--json", b"with space", b"new\nline", b'quo"te\'s', b"\\", b"*", b"caf\xe9", b"\xff\xfe\x80", b"." * 3]
    for name in names:
        write(b"names/" + name, b"named " + name)
        write(b"names/folder " + name + b"/within", b"within " + name)

    link = lambda target, name: os.symlink(target, os.path.join(root, name))
    os.mkdir(os.path.join(root, b"links"))
    link(b".", b"links/here")
    link(b"..", b"links/up")
    link(b"itself", b"links/itself")
    link(b"pong", b"links/ping")
    link(b"ping", b"links/pong")
    link(b"nowhere", b"links/dangling")
    link(b"../one-word", b"links/file")
    link(b"../edge", b"links/folder")
    os.link(os.path.join(root, b"ties"), os.path.join(root, b"links/hard"))
    os.mkfifo(os.path.join(root, b"links/pipe"))
    try:
        # The path may be too long for a socket.
        bound = socket.socket(socket.AF_UNIX)
        bound.bind(os.path.join(root, b"links/socket"))
        bound.close()
    except OSError:
        pass

    deep = b"deep"
    for level in range(300):
        deep += b"/d%d" % (level % 10)
        if level % 10 == 0:
            write(deep + b"/file", b"level l%d" % level)
    write(deep + b"/file", b"the bottom")

    for number in range(2_000):
        write(b"many/%04d" % number, b"small file number w%s\n" % str(number).translate(str.maketrans("0123456789", "abcdefghij")).encode())


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: tree.py DIR")
    main(sys.argv[1])
