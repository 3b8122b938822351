"""Every setting, read from `A2A_…` variables and `.env`; `.env.example` lists them and a test keeps it equal."""

import re
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, HttpUrl
from pydantic_settings import BaseSettings, SettingsConfigDict

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def _read_duration(value: object) -> object:
    if isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        return float(match[1]) * _UNITS[match[2]]
    if isinstance(value, float):
        return value
    raise ValueError("must be a duration such as 500ms, 30s, 15m, 24h or 7d")


Duration = Annotated[float, BeforeValidator(_read_duration), Field(gt=0)]
"""Seconds; written `500ms`, `30s`, `15m`, `24h`, `7d`."""

Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True, slots=True)
class Beyond:
    """Marks a setting as a limit, and says what the first thing beyond it meets; `docs/operations.md` shows both."""

    answer: str


class Settings(BaseSettings):
    """The server's settings. A wrong one stops the start with one sentence."""

    model_config = SettingsConfigDict(
        env_prefix="A2A_", env_file=".env", extra="ignore", env_ignore_empty=True, use_attribute_docstrings=True
    )

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000
    """Port to listen on; 0 takes a free one."""
    public_url: HttpUrl | None = None
    """Where clients reach this server; goes on the agent card. Unset: http://HOST:PORT."""
    agent: str = "app.agent"
    """Module with `card` and `handle`."""
    docs: bool = True
    """Serve /docs, /redoc and /openapi.json."""
    require_version: bool = True
    """Refuse requests without A2A-Version, which A2A reads as 0.3."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level that is logged."""
    log_format: Literal["console", "json"] = "console"
    """How log lines look."""

    store_url: str = "sqlite:///./a2a.db"
    """Where tasks are kept: sqlite:///./a2a.db, postgresql://user:password@host/database, memory://."""
    auto_migrate: bool = True
    """Bring the database's schema up to date at the start; false refuses to start on an outdated one."""
    pool_size: Count = 10
    """Connections to PostgreSQL a process opens at most."""
    wakeup_url: str | None = None
    """The same PostgreSQL by a way that LISTEN works on, where A2A_STORE_URL leads through PgBouncer."""
    sqlite_synchronous: Literal["FULL", "NORMAL"] = "FULL"
    """FULL survives a power cut; NORMAL is faster, and a power cut may take the newest events with it."""
    retention: Duration | None = None
    """Age at which tasks that have ended are removed. Unset removes nothing."""
    key_retention: Duration = 86_400.0
    """Age at which idempotency keys go whose task is gone; only with A2A_RETENTION, or by `a2a purge`."""
    max_events_per_task: Count | None = None
    """Log entries kept of a task; older ones are dropped. Unset keeps all."""
    memory_max_tasks: Count = 10_000
    """Tasks that memory:// keeps; ended ones make room first."""
    memory_task_ttl: Duration = 3600.0
    """How long memory:// keeps a task that has ended."""

    lease_ttl: Duration = 15.0
    """How long a turn is safe from take-over without a renewal."""
    busy_wait: Duration = 2.0
    """How long a message waits for the turn before it to end."""
    cancel_wait: Duration = 5.0
    """How long CancelTask waits for the task to stop."""
    cancel_grace: Duration = 3.0
    """How long a cancelled handler may clean up before it is abandoned."""
    turn_timeout: Duration = 3600.0
    """How long a turn may take before it is stopped and its task FAILED; the agent file's `turn_timeout` wins."""
    shutdown_grace: Duration = 10.0
    """How long running turns may go on after SIGTERM."""

    push: Literal["off", "on"] = "off"
    """Send push notifications, where the store can keep their configurations."""
    push_allow: str = ""
    """Host names, addresses and networks, by comma, that webhooks may be at although they are not public."""
    push_timeout: Duration = 10.0
    """How long a webhook may take to answer."""
    push_retry: Duration = 1.0
    """Time before a notification that failed is sent again; doubled with each further failure, up to an hour."""

    max_body_bytes: Annotated[Count, Beyond("413")] = 4 * 1024 * 1024
    """Largest request body, in bytes."""
    body_timeout: Annotated[Duration, Beyond("408, and the connection is closed")] = 30.0
    """How long a request's body may take to arrive, from the first byte to the last."""
    max_header_bytes: Annotated[int, Field(ge=1024), Beyond("431, and the connection is closed")] = 64 * 1024
    """Longest URL and headers of a request, in bytes of names and values; at least 1,024. Kept by `a2a serve`."""
    max_metadata_bytes: Annotated[Count, Beyond("400 InvalidParams")] = 1024 * 1024
    """Largest metadata of a message, and of the request around it, in bytes of JSON."""
    max_id_length: Annotated[
        int, Field(ge=64, le=1024), Beyond("400 InvalidParams; ValueError at the agent's write")
    ] = 1024
    """Longest id of a message, context, task or artifact, in characters; 64 to 1,024."""
    max_parts_per_message: Annotated[Count, Beyond("400 InvalidParams")] = 1_000
    """Most parts of a client's message."""
    max_event_bytes: Annotated[int, Field(ge=16_384), Beyond("ValueError at the agent's write")] = 1024 * 1024
    """Largest event that an agent writes, in bytes of JSON; at least 16,384."""
    max_artifacts_per_task: Annotated[Count, Beyond("ValueError at the agent's write")] = 1_000
    """Most artifacts of a task."""
    max_push_configs_per_task: Annotated[Count, Beyond("400 InvalidParams")] = 20
    """Most push notification configurations of a task."""
    fail_after_events: Annotated[Count, Beyond("the task ends FAILED; its last entry says why")] = 50_000
    """Most events of a task, over all its turns, dropped ones included; the one that ends it in addition."""
    fail_after_bytes: Annotated[Count, Beyond("the task ends FAILED; its last entry says why")] = 50_000_000
    """Most bytes of a task's events, over all its turns, dropped ones included; the one that ends it in addition."""
    max_streams: Annotated[Count, Beyond("503 with Retry-After")] = 10_000
    """Streams that a process serves at the same time."""
    keep_alive: Duration = 15.0
    """Time between keep-alive comments on a quiet stream."""
    send_timeout: Duration = 30.0
    """How long a stream's reader may refuse to read before it is cut."""

    @property
    def base_url(self) -> str:
        """The public URL, without a slash at its end."""
        return str(self.public_url or f"http://{self.host}:{self.port}").rstrip("/")
