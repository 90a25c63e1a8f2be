"""JSON by orjson and msgspec: times documents in a folder, and reads what is none.

The first argument is a folder: `timed/*.json` are read and written often, `strange/*.json` once. The second
is the rounds. Prints one JSON object. Runs in its own locked environment, and imports nothing of privest.
"""
# ruff: noqa: PLC0415 - benchmarks.json_documents takes functions from here, in an environment without both

import gc
import json
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from time import process_time

_LEAST = 0.2
"""Processor seconds that a figure is measured for, at least."""


def microseconds(call) -> float:
    """Processor time of one call; garbage is not looked for meanwhile."""
    call()
    gc.disable()
    times, begun = 0, process_time()
    while (taken := process_time() - begun) < _LEAST:
        call()
        times += 1
    gc.enable()
    return 1e6 * taken / times


def seen(read, document: bytes) -> str:
    """What a reader makes of a document."""
    try:
        return f"takes {read(document)!r}"
    except (ValueError, RecursionError):
        return "refuses"


def main() -> None:
    """Rounds by what is done, document and who does it; and what each makes of the strange."""
    import msgspec
    import orjson

    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    read = {"orjson": orjson.loads, "msgspec": msgspec.json.decode}
    write = {"orjson": orjson.dumps, "msgspec": msgspec.json.encode}
    told = {
        "versions": {name: version(name) for name in ("orjson", "msgspec")},
        "read": {},
        "write": {},
        "seen": {},
    }
    for path in sorted((folder / "timed").glob("*.json")):
        document = path.read_bytes()
        for what, given, how in (("read", document, read), ("write", json.loads(document), write)):
            told[what][path.stem] = {
                who: [microseconds(partial(does, given)) for _ in range(rounds)] for who, does in how.items()
            }
    for path in sorted((folder / "strange").glob("*.json")):
        told["seen"][path.stem] = {who: seen(does, path.read_bytes()) for who, does in read.items()}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
