"""`python -m benchmarks`: measure and print one Markdown table. Exit code 1 where something could not be measured."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.client import BenchmarkError
from benchmarks.databases import STORES, OpenStore, store_source
from benchmarks.report import Results, document, machine
from benchmarks.servers import Kind, running
from benchmarks.works import QUICK, WORKS, Scale, Session, Work

SERVERS: tuple[Kind, ...] = ("ours", "sdk")
FLOORS: tuple[Kind, ...] = ("fastapi", "asgi")


def main() -> int:
    """Read the arguments, measure, report."""
    options = _parser().parse_args()
    chosen = options.store or ["memory", "sqlite"]
    stores = [store for store in STORES if store in chosen or "all" in chosen]
    works = [work for work in WORKS if not options.only or work.name in options.only]
    scale = QUICK if options.quick else Scale()
    about = machine()
    results = Results()
    for store in stores:
        kinds = SERVERS + FLOORS if store == "memory" else SERVERS
        kinds = tuple(kind for kind in kinds if not options.server or kind in options.server)
        with store_source(store) as open_store:
            _measure_store(store, open_store, works, kinds, scale, results)
    text = document(results, scale, about)
    print(text)
    if options.output is not None:
        options.output.write_text(text, encoding="utf-8")
    return 1 if results.failures else 0


def _measure_store(
    store: str, open_store: OpenStore, works: Sequence[Work], kinds: Sequence[Kind], scale: Scale, results: Results
) -> None:
    shared = [work for work in works if not work.own_server]
    for number in range(1, scale.rounds + 1):
        for kind in kinds:
            _measure_server(
                f"{store}, round {number} of {scale.rounds}", store, open_store, shared, kind, scale, results
            )
    for work in works:
        if work.own_server:
            for kind in kinds:
                _measure_server(store, store, open_store, [work], kind, scale, results)


def _measure_server(
    step: str, store: str, open_store: OpenStore, works: Sequence[Work], kind: Kind, scale: Scale, results: Results
) -> None:
    wanted = [work for work in works if kind in work.kinds]
    if not wanted:
        return
    print(f"{step}: {kind}: {', '.join(work.name for work in wanted)}", file=sys.stderr)
    try:
        with open_store() as url, running(kind, url) as port:
            for work in wanted:
                try:
                    results.add(store, kind, work.run(Session(kind, port, scale)))
                except BenchmarkError as error:
                    results.failures.append(f"{step}, {kind}, {work.name}: {error}")
    except BenchmarkError as error:
        results.failures.append(f"{step}, {kind}: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--store", choices=(*STORES, "all"), action="append", help="repeatable; memory and sqlite")
    parser.add_argument("--quick", action="store_true", help="one short round and fewer tasks")
    parser.add_argument("--only", choices=[work.name for work in WORKS], action="append", help="repeatable")
    parser.add_argument("--server", choices=SERVERS + FLOORS, action="append", help="repeatable; all of them")
    parser.add_argument("--output", type=Path, metavar="FILE.md", help="write the report there, too")
    return parser


if __name__ == "__main__":
    sys.exit(main())
