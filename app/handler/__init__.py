"""What an agent sees: the turn it answers, the artifacts it writes, and a rehearsal without a server."""

from app.handler.agent import FAILURE_TEXT, Agent, Handle, Lifespan, Recovery, play
from app.handler.rehearsal import rehearse
from app.handler.turn import ArtifactWriter, Content, TaskLimitError, Turn, TurnEndedError, TurnSink

__all__ = [
    "FAILURE_TEXT",
    "Agent",
    "ArtifactWriter",
    "Content",
    "Handle",
    "Lifespan",
    "Recovery",
    "TaskLimitError",
    "Turn",
    "TurnEndedError",
    "TurnSink",
    "play",
    "rehearse",
]
