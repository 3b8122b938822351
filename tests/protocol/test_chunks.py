"""Pieces of a streamed text are written by a shorter way, and come out the same to the byte."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.protocol import Artifact, Part, Task, TaskArtifactUpdateEvent, TaskState, TaskStatus, copy_task, fold
from app.protocol.events import TextChunks, update_of
from app.protocol.lifecycle import append_part

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NAMES = ANY_TEXT.filter(str.strip) | st.just('{"text":""}')


def task(artifact_id: str) -> Task:
    artifact = Artifact(artifact_id=artifact_id, parts=[Part(text="first")])
    return Task(id='a "b"', context_id="c", status=TaskStatus(state=TaskState.WORKING), artifacts=[artifact])


@settings(max_examples=200, deadline=None, database=None)
@given(NAMES, ANY_TEXT)
def test_a_piece_is_what_the_models_would_have_written(artifact_id: str, text: str) -> None:
    made = task(artifact_id)
    piece = Artifact(artifact_id=artifact_id, parts=[Part(text=text)])
    event = TaskArtifactUpdateEvent(task_id=made.id, context_id=made.context_id, artifact=piece, append=True)
    update = TextChunks(made, artifact_id).update(text)
    assert update.data == update_of(event).data
    assert update.event == event
    assert (update.is_chunk, update.is_reply, update.state) == (True, False, None)
    folded, appended = copy_task(made), copy_task(made)
    append_part(appended, artifact_id, Part(text=text))
    assert appended == fold(folded, event)


@pytest.mark.parametrize("text", ["\0", "a\0b", "\ud800", "x\udfff"])
def test_text_that_no_store_can_keep_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="text"):
        TextChunks(task("a"), "a").update(text)


def test_a_part_for_an_artifact_that_is_not_there_makes_it() -> None:
    made = task("a")
    append_part(made, "b", Part(text="x"))
    assert [artifact.artifact_id for artifact in made.artifacts] == ["a", "b"]
