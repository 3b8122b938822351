"""What every agent here says, so that all of them say the same."""

ARTIFACT = "answer"
"""Name of the one artifact."""


def chunks_asked(text: str) -> int | None:
    """How many chunks a message asks for; None where it wants an echo."""
    word, _, number = text.partition(" ")
    return int(number) if word == "chunks" and number.isdigit() else None


def chunk(number: int) -> str:
    """Twenty characters of a streamed answer."""
    return f"streamed chunk {number:04d} "


def echo(text: str) -> str:
    """The answer to any other message."""
    return f"echo: {text}"
