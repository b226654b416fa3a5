"""(f) Time and memory of search and MaxP as the corpus doubles, each in a process of its own.

    python benchmarks/growth.py [--sizes 100000 200000 400000 800000 1600000] [--threads 2]

Texts are read. Per doubling: how many times longer, and how much more memory.
"""

from __future__ import annotations

import argparse

from memory import in_process


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[100_000 << step for step in range(5)])
    parser.add_argument("--ways", nargs="+", default=["search", "max_passage"])
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    for way in arguments.ways:
        before: dict[str, float] | None = None
        for size in arguments.sizes:
            found = in_process(way, size, arguments.threads)
            line = f"{way:12} {size:>10,}: {found['seconds']:6.2f} s, {found['MiB']:5.0f} MiB"
            line += f", processor {found['processor']:6.2f} s, {found['processor'] / size * 1e6:5.2f} us a passage"
            if before is not None:
                line += f"; time x {found['seconds'] / before['seconds']:.2f}"
                line += f", processor x {found['processor'] / before['processor']:.2f}"
                line += f", memory {found['MiB'] - before['MiB']:+.0f} MiB"
            print(line, flush=True)
            before = found


if __name__ == "__main__":
    main()
