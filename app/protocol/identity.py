"""Whose a task is."""

from typing import Final, NamedTuple


class Owner(NamedTuple):
    """Tenant and subject: what a task store isolates by. Empty strings mean none."""

    tenant: str = ""
    subject: str = ""


ANONYMOUS: Final = Owner()
