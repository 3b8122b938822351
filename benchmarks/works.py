"""What is measured, and the proof that the work was done."""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from benchmarks.client import Answer, BenchmarkError, drive, request
from benchmarks.script import chunk, echo
from benchmarks.servers import Kind

CONNECTIONS = 16
CHUNKS = 500
PAGE = 100
TEXT = "hello"
COMPLETED = "TASK_STATE_COMPLETED"


@dataclass(frozen=True)
class Scale:
    """How long to measure."""

    rounds: int = 3
    warm_up: float = 1.0
    """Seconds."""
    seconds: float = 4.0
    """Of each measurement under load."""
    streams: int = 10
    """One-stream measurements of a round, as long as they stay within `seconds`."""
    pages: int = 30
    few_tasks: int = 2_300
    many_tasks: int = 100_000


QUICK = Scale(rounds=1, warm_up=0.5, seconds=1.5, streams=5, pages=10, few_tasks=500, many_tasks=5_000)


@dataclass(frozen=True)
class Metric:
    """One row of the table."""

    name: str
    unit: str
    more_is_better: bool = False
    floor: Kind | None = None
    """The server that this is compared with as a floor."""


@dataclass(frozen=True)
class Session:
    """A running server to measure."""

    kind: Kind
    port: int
    scale: Scale


Values = Mapping[Metric, float]


@dataclass(frozen=True)
class Work:
    """A measurement of one or more rows."""

    name: str
    kinds: tuple[Kind, ...]
    run: Callable[[Session], Values]
    own_server: bool = False
    """Wants a server with an empty store, once, not in every round."""


SEND_RATE = Metric("unary send, 16 connections", "requests/s", more_is_better=True, floor="fastapi")
SEND_P50 = Metric("unary send, 16 connections, p50", "ms", floor="fastapi")
SEND_P99 = Metric("unary send, 16 connections, p99", "ms", floor="fastapi")
STREAM = Metric(f"one stream of {CHUNKS} chunks, drained", "ms", floor="asgi")
STREAMS = Metric(f"{CONNECTIONS} such streams at once", "events/s", more_is_better=True, floor="asgi")
GET_RATE = Metric("GetTask, 16 connections", "requests/s", more_is_better=True, floor="fastapi")
GET_P99 = Metric("GetTask, 16 connections, p99", "ms", floor="fastapi")
LIST_FEW = Metric(f"ListTasks, page of {PAGE}", "ms")
LIST_MANY = Metric(f"ListTasks, page of {PAGE}, ours with many more tasks", "ms")

_numbers = itertools.count()


def _send_request(path: str, text: str) -> bytes:
    message = {"messageId": f"message-{next(_numbers):012d}", "role": "ROLE_USER", "parts": [{"text": text}]}
    return request("POST", path, json.dumps({"message": message}, separators=(",", ":")).encode())


def _sends() -> Iterator[bytes]:
    while True:
        yield _send_request("/message:send", TEXT)


def _object(answer: Answer) -> dict[str, Any]:
    if answer.status != 200:
        raise BenchmarkError(f"status {answer.status}: {answer.body[:200]!r}")
    value = json.loads(answer.body)
    if not isinstance(value, dict):
        raise BenchmarkError("an answer is not an object")
    return value


def _check_task(task: dict[str, Any]) -> str:
    """The id of a task that was answered with the echo."""
    texts = [part.get("text") for artifact in task.get("artifacts", []) for part in artifact["parts"]]
    if task["status"]["state"] != COMPLETED or texts != [echo(TEXT)]:
        raise BenchmarkError(f"not the echo: {task}")
    return str(task["id"])


def _check_stream(answer: Answer) -> int:
    """The number of events of a stream that brought every chunk, in order, and then the end."""
    if answer.status != 200:
        raise BenchmarkError(f"status {answer.status}: {answer.body[:200]!r}")
    data = [line[6:] for line in answer.body.splitlines() if line.startswith(b"data: ")]
    events: list[dict[str, Any]] = [json.loads(line) for line in data]
    updates = [event["artifactUpdate"] for event in events if "artifactUpdate" in event]
    texts = [part["text"] for update in updates for part in update["artifact"]["parts"]]
    appends = [bool(update.get("append")) for update in updates]
    if texts != [chunk(number) for number in range(CHUNKS)] or appends != [number > 0 for number in range(CHUNKS)]:
        raise BenchmarkError(f"a stream brought {len(texts)} pieces that are not the {CHUNKS} chunks")
    kinds = [next(iter(event)) for event in events]
    if kinds != ["task", "statusUpdate", *["artifactUpdate"] * CHUNKS, "statusUpdate"]:
        raise BenchmarkError(f"a stream has other events: {kinds[:3]} … {kinds[-2:]}, {len(kinds)} in all")
    if events[-1]["statusUpdate"]["status"]["state"] != COMPLETED:
        raise BenchmarkError("a stream did not end COMPLETED")
    return len(events)


def _load(session: Session, requests: Iterator[bytes]) -> tuple[list[Answer], float, float, float]:
    """Warm up, then measure: the answers, requests/s, p50 and p99 in ms."""
    drive(session.port, requests, connections=CONNECTIONS, seconds=session.scale.warm_up)
    seconds = session.scale.seconds
    answers = drive(session.port, requests, connections=CONNECTIONS, seconds=seconds)
    rate = sum(answer.finished <= seconds for answer in answers) / seconds
    cuts = quantiles((answer.seconds * 1000 for answer in answers), n=100)
    return answers, rate, cuts[49], cuts[98]


def send(session: Session) -> Values:
    """Blocking sends of an echo."""
    answers, rate, p50, p99 = _load(session, _sends())
    ids = {_check_task(_object(answer)["task"]) for answer in answers}
    if len(ids) != len(answers) and session.kind != "fastapi":
        raise BenchmarkError("sends shared a task")
    return {SEND_RATE: rate, SEND_P50: p50, SEND_P99: p99}


def stream(session: Session) -> Values:
    """One stream at a time."""
    times: list[float] = []
    for attempt in range(session.scale.streams + 1):
        (answer,) = drive(session.port, [_send_request("/message:stream", f"chunks {CHUNKS}")], connections=1)
        _check_stream(answer)
        # The first warms up, except where it alone takes up the time there is.
        if attempt or answer.seconds > session.scale.seconds:
            times.append(answer.seconds)
        if sum(times) > session.scale.seconds:
            break
    return {STREAM: median(times) * 1000}


def streams(session: Session) -> Values:
    """Sixteen streams at once, until time is over but at least once."""
    rates: list[float] = []
    spent = 0.0
    while not rates or spent < session.scale.seconds / 2:
        requests = [_send_request("/message:stream", f"chunks {CHUNKS}") for _ in range(CONNECTIONS)]
        answers = drive(session.port, requests, connections=CONNECTIONS)
        elapsed = max(answer.finished for answer in answers)
        rates.append(sum(_check_stream(answer) for answer in answers) / elapsed)
        spent += elapsed
    return {STREAMS: median(rates)}


def get(session: Session) -> Values:
    """GetTask of one finished task."""
    (made,) = drive(session.port, itertools.islice(_sends(), 1), connections=1)
    task_id = _check_task(_object(made)["task"])
    answers, rate, _, p99 = _load(session, itertools.repeat(request("GET", f"/tasks/{task_id}")))
    if {_check_task(_object(answer)) for answer in answers} != {task_id}:
        raise BenchmarkError("GetTask answered with another task")
    return {GET_RATE: rate, GET_P99: p99}


def list_tasks(session: Session) -> Values:
    """The first page of all tasks; ours also where there are many more of them."""
    scale = session.scale
    few = _page_time(session, 0, scale.few_tasks)
    if session.kind != "ours":
        return {LIST_FEW: few, LIST_MANY: few}
    return {LIST_FEW: few, LIST_MANY: _page_time(session, scale.few_tasks, scale.many_tasks)}


def _page_time(session: Session, present: int, wanted: int) -> float:
    """Fill the store up and measure pages, in ms."""
    made = drive(session.port, itertools.islice(_sends(), wanted - present), connections=CONNECTIONS)
    for answer in made:
        _check_task(_object(answer)["task"])
    page = request("GET", f"/tasks?pageSize={PAGE}")
    answers = drive(session.port, itertools.repeat(page, session.scale.pages + 3), connections=1)
    listing = _object(answers[-1])
    if len(listing["tasks"]) != PAGE or listing["totalSize"] != wanted:
        raise BenchmarkError(f"a page has {len(listing['tasks'])} tasks of {listing['totalSize']}, not of {wanted}")
    return median(answer.seconds for answer in answers[3:]) * 1000


WORKS = (
    Work("send", ("ours", "sdk", "fastapi"), send),
    Work("stream", ("ours", "sdk", "asgi"), stream),
    Work("streams", ("ours", "sdk", "asgi"), streams),
    Work("get", ("ours", "sdk", "fastapi"), get),
    Work("list", ("ours", "sdk"), list_tasks, own_server=True),
)


def scaled(name: str, scale: Scale) -> str:
    """A row's name with the numbers that depend on the scale."""
    counts = {
        LIST_FEW.name: f"{LIST_FEW.name}, {scale.few_tasks:,} tasks",
        LIST_MANY.name: f"ListTasks, page of {PAGE}, ours with {scale.many_tasks:,} tasks, SDK {scale.few_tasks:,}",
    }
    return counts.get(name, name)
