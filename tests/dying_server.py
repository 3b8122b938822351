"""A server that dies by SIGKILL when so many answers to sends are about to be written, and lets none of them out."""

import asyncio
import os
import signal
import sys

import uvicorn
from starlette.types import Message, Receive, Scope, Send

from app.bootstrap import build_app
from app.settings import Settings

DIES_AT = 4


def main() -> None:
    app = build_app(Settings())
    held = 0

    async def dying(scope: Scope, receive: Receive, send: Send) -> None:
        async def last_words(message: Message) -> None:
            nonlocal held
            if message["type"] == "http.response.start" and scope["path"].startswith(("/message:", "/rpc")):
                held += 1
                if held == DIES_AT:
                    os.kill(os.getpid(), signal.SIGKILL)
                await asyncio.Event().wait()
            await send(message)

        await app(scope, receive, last_words)

    uvicorn.run(dying, port=int(sys.argv[2]), log_config=None, access_log=False)


if __name__ == "__main__":
    main()
