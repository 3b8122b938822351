"""When to try again, and how long to wait before."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from app.client.errors import AmbiguousSendError, ConnectionFailedError
from app.protocol.errors import UnavailableError

T = TypeVar("T")

LARGEST_EXPONENT: Final = 64
"""Beyond it the bound is `maximum` in any policy, and the power soon too large for a float."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Tries of one call, with exponential back-off and full jitter between them."""

    attempts: int = 4
    """Tries in all, the first included; at least 1."""
    initial: float = 0.2
    """Seconds; the bound of the first wait, doubled with each further one."""
    maximum: float = 10.0
    """Seconds; no wait is longer, unless the peer asks for it."""

    def delay(self, tried: int, retry_after: float | None = None) -> float:
        """Seconds to wait after so many tries; at least what the peer asked for."""
        bound = min(self.maximum, self.initial * 2 ** min(tried - 1, LARGEST_EXPONENT))
        return max(retry_after or 0.0, random.uniform(0, bound))  # noqa: S311 - jitter is no secret


async def repeated(ask: Callable[[], Awaitable[T]], policy: RetryPolicy | None, *, repeatable: bool) -> T:
    """Ask until there is an answer, as often as the policy says; once without one.

    What is not `repeatable` is asked again only where the peer has seen nothing of it. Raises what the last try did.
    """
    tried = 0
    while True:
        tried += 1
        try:
            return await ask()
        except (ConnectionFailedError, AmbiguousSendError, UnavailableError) as error:
            may_repeat = repeatable or isinstance(error, ConnectionFailedError)
            if policy is None or tried >= policy.attempts or not may_repeat:
                raise
            asked = error.retry_after if isinstance(error, UnavailableError) else None
            await asyncio.sleep(policy.delay(tried, asked))
