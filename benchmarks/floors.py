"""What cannot be beaten: FastAPI that only parses and answers, and raw ASGI that only writes the stream.

`uvicorn --factory benchmarks.floors:bare_fastapi` or `benchmarks.floors:raw_asgi`.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Response

from benchmarks.script import ARTIFACT, chunk, chunks_asked, echo

TASK_ID = "6f1c8a58-1d1e-4f6b-9a57-0b6c3f1f3a10"
CONTEXT_ID = "e0b9f6d2-53d8-4c5e-8a86-b7a1d2c4e911"
TIMESTAMP = "2026-01-01T00:00:00.000Z"

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def status(state: str) -> dict[str, Any]:
    """A TaskStatus in ProtoJSON."""
    return {"state": f"TASK_STATE_{state}", "timestamp": TIMESTAMP}


def task(state: str, text: str, artifacts: list[dict[str, Any]]) -> dict[str, Any]:
    """A Task in ProtoJSON."""
    message = {"messageId": "message-000000000000", "role": "ROLE_USER", "parts": [{"text": text}]}
    made = {"id": TASK_ID, "contextId": CONTEXT_ID, "status": status(state), "history": [message]}
    return {**made, "artifacts": artifacts} if artifacts else made


def compact(value: Any) -> bytes:
    """JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


def bare_fastapi() -> FastAPI:
    """Parses SendMessage as our server does, with the same model, and answers with a Task encoded beforehand."""
    # Imported late: the other floor is measured even while this model cannot be imported.
    from app.protocol.requests import SendMessageRequest  # noqa: PLC0415

    done = task("COMPLETED", "hello", [{"artifactId": ARTIFACT, "name": ARTIFACT, "parts": [{"text": echo("hello")}]}])
    task_body, send_body = compact(done), compact({"task": done})
    app = FastAPI()

    @app.post("/message:send")
    async def send_message(request: SendMessageRequest) -> Response:  # noqa: ARG001 - parsing it is the work
        return Response(send_body, media_type="application/json")

    @app.get("/tasks/{task_id}")
    async def get_task(task_id: str) -> Response:  # noqa: ARG001
        return Response(task_body, media_type="application/json")

    return app


def stream_frames(text: str) -> list[bytes]:
    """The frames of the stream that answers `text`, byte for byte as long as our server's."""
    ids = {"taskId": TASK_ID, "contextId": CONTEXT_ID}
    events: list[dict[str, Any]] = [
        {"task": task("SUBMITTED", text, [])},
        {"statusUpdate": {**ids, "status": status("WORKING")}},
    ]
    for number in range(chunks_asked(text) or 0):
        parts = [{"text": chunk(number)}]
        if number:
            update = {**ids, "artifact": {"artifactId": ARTIFACT, "parts": parts}, "append": True}
        else:
            update = {**ids, "artifact": {"artifactId": ARTIFACT, "name": ARTIFACT, "parts": parts}}
        events.append({"artifactUpdate": update})
    events.append({"statusUpdate": {**ids, "status": status("COMPLETED")}})
    return [b"id: %d\ndata: %b\n\n" % (number, compact(event)) for number, event in enumerate(events, 1)]


def raw_asgi() -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    """Writes the stream, one write an event; the frames are encoded beforehand."""
    streams: dict[str, list[bytes]] = {}

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        text = json.loads(body)["message"]["parts"][0]["text"] if body else ""
        if text not in streams:
            streams[text] = stream_frames(text)
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for frame in streams[text]:
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app
