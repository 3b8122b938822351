"""When to try again, and how long to wait before."""

import random
from dataclasses import dataclass
from typing import Final

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
