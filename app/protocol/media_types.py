"""Media types of parts, and which of them an agent takes (A2A 4.1.6, 4.4.1, 4.4.5)."""

from collections.abc import Iterable

from app.protocol.agent_card import AgentCard
from app.protocol.types import Part


class MediaTypes:
    """A set of media types; `*/*` and `text/*` stand for many. Case and parameters do not count (RFC 9110 8.3.1)."""

    __slots__ = ("_every", "_exact", "_kinds")

    def __init__(self, names: Iterable[str]) -> None:
        self._exact = frozenset(_essence(name) for name in names)
        self._kinds = frozenset(name[:-2] for name in self._exact if name.endswith("/*"))
        self._every = "*/*" in self._exact

    def __contains__(self, media_type: str) -> bool:
        name = _essence(media_type)
        return self._every or name in self._exact or name.partition("/")[0] in self._kinds

    def __str__(self) -> str:
        return ", ".join(sorted(self._exact))


def input_modes(card: AgentCard) -> MediaTypes:
    """What the agent takes: the card's default input modes and those of every skill.

    A message names no skill, so what one skill takes, the agent takes.
    """
    return MediaTypes([*card.default_input_modes, *(mode for skill in card.skills for mode in skill.input_modes)])


def media_type_of(part: Part) -> str | None:
    """The media type of a part: the one it names, else `text/plain` for text and `application/json` for data.

    `None` for bytes and URLs that name none. A2A refuses a media type that is *provided* (3.1.1, 3.3.2), and here none
    is; RFC 9110 8.3 leaves it to the recipient to find out what it is. Such a part is for the agent to judge.
    """
    if part.media_type:
        return part.media_type
    if part.text is not None:
        return "text/plain"
    return "application/json" if part.data is not None else None


def _essence(name: str) -> str:
    return name.partition(";")[0].strip().lower()
