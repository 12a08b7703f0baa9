"""What the Python programs of this folder share: they run the scenarios that their arguments
name, and end as a program does whose client raised."""
import os
import sys

BASE = "https://api.example.invalid"
SIZE = 1 << 20
PARTS = (262_144, 262_144, 100_000)


def chunks():
    """A body whose length the client does not know."""
    for _ in range(16):
        yield bytes(SIZE // 16)


def ranges():
    """Each part of the resumable upload with its Content-Range."""
    at, total = 0, sum(PARTS)
    for size in PARTS:
        yield bytes(size), f"bytes {at}-{at + size - 1}/{total}"
        at += size


def own_roots():
    """A file of roots that the program names itself: the upstream's, and no proxy's."""
    return os.environ["OWN_ROOTS"]


def run(scenarios):
    """Prints NAME: RESULT for each scenario in the arguments. An exception ends the program
    with its text, and the response's if it has one, on stderr."""
    for name in sys.argv[1:]:
        try:
            print(f"{name}: {scenarios[name]()}", flush=True)
        except Exception as error:
            body = getattr(getattr(error, "response", None), "text", "")
            sys.exit(f"{type(error).__name__}: {error}\n{body}")
