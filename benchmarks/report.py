"""The table: work × server, with ratios."""

import os
import platform
from collections import defaultdict
from importlib.metadata import PackageNotFoundError, version
from statistics import median

from benchmarks.servers import Kind
from benchmarks.works import Metric, Scale, Values, scaled

PACKAGES = ("a2a-sdk", "fastapi", "uvicorn", "uvloop", "httptools", "pydantic", "sqlalchemy", "asyncpg", "aiosqlite")
STORE_NAMES = {"memory": "memory", "sqlite": "SQLite", "postgres": "PostgreSQL"}


class Results:
    """The values of every round, by store, row and server."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, Metric], dict[Kind, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.failures: list[str] = []
        """What could not be measured, and why."""

    def add(self, store: str, kind: Kind, values: Values) -> None:
        """Take what one server reached in one round."""
        for metric, value in values.items():
            self._values[store, metric][kind].append(value)

    def table(self, scale: Scale) -> str:
        """Markdown."""
        lines = [
            "| store | work | unit | ours | a2a-sdk | ours against SDK | floor | ours against floor |",
            "|---|---|---|--:|--:|--:|--:|--:|",
        ]
        for (store, metric), by_kind in self._values.items():
            floor = by_kind.get(metric.floor, []) if metric.floor else []
            cells = [
                STORE_NAMES[store],
                scaled(metric.name, scale),
                metric.unit,
                _figure(by_kind.get("ours", [])),
                _figure(by_kind.get("sdk", [])),
                _ratio(metric, by_kind.get("ours", []), by_kind.get("sdk", [])),
                _figure(floor),
                _ratio(metric, by_kind.get("ours", []), floor),
            ]
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)


def _figure(values: list[float]) -> str:
    if not values:
        return "–"
    middle = median(values)
    return f"{middle:,.0f}" if middle >= 100 else f"{middle:.3g}"


def _ratio(metric: Metric, ours: list[float], other: list[float]) -> str:
    """How many times faster ours is; with more rounds than one, the span of their own ratios."""
    if not ours or not other:
        return "–"
    ratios = sorted(a / b if metric.more_is_better else b / a for a, b in zip(ours, other, strict=False))
    text = f"{median(ratios):.3g} ×"
    return text if len(ratios) == 1 else f"{text} ({ratios[0]:.3g}–{ratios[-1]:.3g})"


def machine() -> str:
    """What was measured on, in one paragraph."""
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs, load at the start {load}"
    return f"{platform.python_implementation()} {platform.python_version()}, {system}; {', '.join(_versions())}."


def _versions() -> list[str]:
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(f"{package} absent")
    return found


def document(results: Results, scale: Scale, about: str) -> str:
    """The whole report in Markdown."""
    rounds = f"{scale.rounds} rounds, servers taking turns" if scale.rounds > 1 else "One round"
    notes = (
        f"{about}\n\n{rounds}; medians. Ratios say how many times faster ours is in the same round, their range in "
        "brackets; below 1 it is slower. Floors, measured with the memory store: bare FastAPI that parses the same "
        "body with the same model and answers with a fixed Task; for streams a raw ASGI app that writes the same "
        "frames, one write an event. One server process each, loopback."
    )
    failures = "".join(f"\n- {failure}" for failure in results.failures)
    return f"{notes}\n\n{results.table(scale)}\n" + (f"\nNot measured:\n{failures}\n" if failures else "")
