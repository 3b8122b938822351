"""What A2A v1.0 asks of a server, clause by clause, and what this server promises besides: one entry each.

A test says by `@requirement("id")` what it proves. `test_requirements.py` fails for an entry that no test names and
that states no gap, and for a test that names what is not here. Clauses are those of the A2A specification unless a word
says otherwise; clients' duties, other bindings and what only an operator can keep are left out or stated as gaps.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import pytest

requirement = pytest.mark.requirement


class Requirement(NamedTuple):
    """One promise."""

    clause: str
    level: Literal["MUST", "SHOULD", "MAY", "OURS"]
    behaviour: str
    gap: str | None = None
    """Why no test shows it, or what is not kept."""


NO_AUTH: Final = "authentication is not built yet; the card declares no scheme"
OPERATOR: Final = "an operator's: the server speaks HTTP and stands behind a proxy"

REQUIREMENTS: Final[Mapping[str, Requirement]] = {
    # 3.1 Operations
    "send.task": Requirement("3.1.1", "MUST", "A send is answered with the Task that tracks it, or with a Message."),
    "send.reply": Requirement("3.1.1", "MAY", "A direct Message is all there is: no task can be found for it."),
    "send.media-type": Requirement(
        "3.1.1", "MUST", "A part of a media type that the agent does not take: ContentTypeNotSupportedError."
    ),
    "send.terminal-task": Requirement("3.1.1", "MUST", "A message for a task that ended: UnsupportedOperationError."),
    "send.unknown-task": Requirement("3.1.1", "MUST", "A message for a task that is not there: TaskNotFoundError."),
    "stream.task-first": Requirement("3.1.2", "MUST", "A stream begins with the Task and ends with its final state."),
    "stream.reply-only": Requirement("3.1.2", "MUST", "A stream of a direct Message is that Message and its end."),
    "stream.live": Requirement("3.1.2", "MUST", "Events come while the turn runs."),
    "stream.refusals": Requirement("3.1.2", "MUST", "What a send is refused for, a streaming send is too."),
    "get.current": Requirement("3.1.3", "MUST", "GetTask shows state, artifacts and history as they are now."),
    "get.unknown": Requirement("3.1.3", "MUST", "GetTask of a task that is not there: TaskNotFoundError."),
    "list.fields": Requirement("3.1.4", "MUST", "A page has tasks, nextPageToken, pageSize and totalSize, always."),
    "list.artifacts": Requirement("3.1.4", "MUST", "Artifacts are left out, as a member, unless they are asked for."),
    "list.order": Requirement("3.1.4", "MUST", "Tasks come by the time of their status, newest first."),
    "list.cursor": Requirement("3.1.4", "MUST", "Pages follow a cursor: no task twice, none missed; the last says so."),
    "list.filters": Requirement("3.1.4", "MUST", "Context, state and time narrow a listing."),
    "list.parameters": Requirement("3.1.4", "MUST", "A parameter out of its bounds is refused by its name."),
    "list.visible": Requirement("3.1.4", "MUST", "A listing shows the caller's tasks and no others."),
    "cancel.task": Requirement("3.1.5", "MUST", "CancelTask stops the work and answers with the task CANCELED."),
    "cancel.waiting": Requirement("3.1.5", "MUST", "A task that waits for its caller is cancelled at once."),
    "cancel.terminal": Requirement("3.1.5", "MUST", "A task that ended: TaskNotCancelableError, and nothing changes."),
    "cancel.unknown": Requirement("3.1.5", "MUST", "A task that is not there: TaskNotFoundError."),
    "cancel.race": Requirement("3.1.5", "MUST", "Of cancelling and completing at the same time one wins, for good."),
    "subscribe.task-first": Requirement("3.1.6", "MUST", "A subscription begins with the Task as it is now."),
    "subscribe.end": Requirement("3.1.6", "MUST", "A subscription ends with the task, and not before."),
    "subscribe.terminal": Requirement("3.1.6", "MUST", "A task that ended: UnsupportedOperationError."),
    "subscribe.unknown": Requirement("3.1.6", "MUST", "A task that is not there: TaskNotFoundError."),
    "push.create": Requirement("3.1.7", "MUST", "A configuration lasts until it is deleted or its task goes."),
    "push.get": Requirement("3.1.8", "MUST", "A configuration is shown; one that is not there is an error."),
    "push.list": Requirement("3.1.9", "MUST", "All configurations of a task are listed."),
    "push.delete": Requirement("3.1.10", "MUST", "A deleted configuration gets nothing; twice is once."),
    # 3.2 Parameters
    "send.blocking": Requirement("3.2.2", "MUST", "A send is answered when the turn has ended, with all it brought."),
    "send.interrupted": Requirement("3.2.2", "MUST", "A send is answered when the task waits for its caller."),
    "send.immediately": Requirement("3.2.2", "MUST", "With returnImmediately a send is answered while the turn runs."),
    "history.length": Requirement("3.2.4", "MUST", "At most so many messages, the newest, in every operation."),
    "history.none": Requirement("3.2.4", "SHOULD", "A history length of 0 leaves the member out."),
    "parameters.case": Requirement("3.2.6", "MUST", "Names of service parameters are read in any case."),
    "send.immediately-reply": Requirement("3.2.2", "MUST", "A direct Message is waited for in any case."),
    "stream.immediately": Requirement("3.2.2", "MUST", "returnImmediately changes nothing for a stream."),
    # 3.3 Semantics
    "cancel.together": Requirement("3.3.1", "MUST", "Who cancels at the same time gets the same answer."),
    "errors.validation": Requirement("3.3.2", "MUST", "Everything is validated before anything is done."),
    "errors.names-field": Requirement("3.3.2", "SHOULD", "A refusal names the wrong parameter and what it should be."),
    "errors.not-found": Requirement("3.3.2", "SHOULD", "What is not there and what is not yours is the same answer."),
    "errors.parts": Requirement("3.3.2", "MUST", "Every error has a code, a message and typed details."),
    "errors.temporary": Requirement("3.3.2", "SHOULD", "A failure that may pass is told apart, and when to come back."),
    "errors.authentication": Requirement(
        "3.3.2", "MUST", "Missing or wrong credentials: 401 and a challenge.", NO_AUTH
    ),
    "errors.authorization": Requirement("3.3.2", "MUST", "A lack of permission is an error, 403.", NO_AUTH),
    "errors.log": Requirement("3.3.2", "SHOULD", "Faults of the server are logged.", "no test reads the log"),
    "capability.streaming": Requirement("3.3.4", "MUST", "Where the card has no streaming, streams are refused."),
    "capability.push": Requirement("3.3.4", "MUST", "Where the card has no push, its four operations are refused."),
    "capability.extended-card": Requirement("3.3.4", "MUST", "Without an extended card, asking for it is refused."),
    "capability.extended-card-missing": Requirement(
        "3.3.4", "MUST", "Declared, but not configured: an error of its own.", "the card cannot declare it without one"
    ),
    "capability.extension": Requirement(
        "3.3.4", "MUST", "A required extension not named: ExtensionSupportRequiredError."
    ),
    # 3.4 Several turns
    "context.generated": Requirement("3.4.1", "MUST", "A context id that the server makes is in the answer."),
    "context.kept": Requirement("3.4.1", "MAY", "A context id of the client is kept, and groups tasks."),
    "task-id.unique": Requirement("3.4.2", "MUST", "The server makes a new id for every new task."),
    "context.inferred": Requirement("3.4.3", "MUST", "A task id alone is enough: the context is that of the task."),
    "context.mismatch": Requirement("3.4.3", "MUST", "A task id with another context is refused."),
    "turns.continue": Requirement("3.4.3", "MUST", "A message with the id of a waiting task continues it."),
    # 3.5 Delivery
    "delivery.order": Requirement("3.5.2", "MUST", "Events come in the order in which they were made."),
    "delivery.equal": Requirement("3.5.2", "MUST", "All streams of a task get the same events in the same order."),
    "delivery.independent": Requirement("3.5.2", "MUST", "A stream that is closed changes nothing for the task."),
    # 3.6 Versions
    "version.unsupported": Requirement("3.6.2", "MUST", "Another version: VersionNotSupportedError."),
    "version.empty": Requirement("3.6.2", "MUST", "No version means 0.3, which is not spoken here."),
    "version.patch": Requirement("3.6", "MUST", "Patch numbers play no part."),
    "version.query": Requirement("3.6.1", "MAY", "The version may be a request parameter."),
    # 3.7, 4 and 5 Data
    "results.artifacts": Requirement("3.7", "SHOULD", "Results come as artifacts of the task."),
    "data.model": Requirement(
        "4", "MUST", "Every message and field of the official definition is there, and no other."
    ),
    "data.fold": Requirement("4.2", "MUST", "A client that applies the events in order has the task."),
    "data.camel-case": Requirement("5.5", "MUST", "Members are camelCase, enums are names."),
    "data.timestamps": Requirement("5.6.1", "MUST", "Times are UTC with milliseconds and a Z."),
    "data.required": Requirement("5.7", "MUST", "What is required is there, and its absence is refused."),
    "data.presence": Requirement("5.7", "MUST", "What is set is written, what is unset is not; no nulls."),
    "data.unknown": Requirement("5.7", "SHOULD", "Members that are not known are ignored."),
    "push.payload": Requirement("4.3.3", "MUST", "A notification is the event as a StreamResponse, in order."),
    "push.credentials": Requirement("4.3.3", "MUST", "A notification carries the credentials of its configuration."),
    "push.retry": Requirement("13.2", "SHOULD", "A failed delivery is tried again, later and later."),
    "push.declared": Requirement("3.3.4", "MUST", "The card says whether notifications are sent."),
    "push.secrets": Requirement("13.2", "SHOULD", "Credentials are taken and never shown."),
    "push.scope": Requirement("13.1", "MUST", "Configurations are of the caller's tasks only."),
    "push.delivery": Requirement("4.3.3", "MUST", "Each event is tried at least once for each webhook."),
    "push.timeout": Requirement("4.3.3", "SHOULD", "A webhook has a time to answer in."),
    "extensions.unknown": Requirement("4.6.3", "SHOULD", "Unknown extensions and other versions are ignored."),
    "extensions.activated": Requirement("4.6", "SHOULD", "The answer names what was activated."),
    "bindings.equal": Requirement("5.1", "MUST", "Both bindings have the same operations, answers and errors."),
    "bindings.declared": Requirement("5.2", "MUST", "The card declares both bindings, with URL and version."),
    "errors.mapping": Requirement("5.4", "MUST", "Every error has the code and status of the specification's table."),
    # 7 Authorization
    "auth.requests": Requirement("7.4", "MUST", "Every request is authenticated as the card declares.", NO_AUTH),
    "auth.transport": Requirement("7.1", "MUST", "Production traffic is encrypted.", OPERATOR),
    "auth-required.state": Requirement("7.6.1", "MUST", "An agent that needs authorization says so by the state."),
    "auth-required.streams": Requirement("7.6.1", "SHOULD", "Streams stay open; the agent may go on by itself."),
    "auth-required.messages": Requirement("7.6.1", "SHOULD", "A task that waits for authorization takes messages."),
    # 8 The card
    "card.place": Requirement("8.2", "MUST", "The card is at its well-known path, for everybody."),
    "card.true": Requirement("8.3", "MUST", "The card says what the server does, and no more."),
    "card.signature": Requirement("8.4", "MAY", "A card may be signed.", "cards are not signed yet"),
    "card.cache": Requirement("8.6.1", "SHOULD", "Cache-Control, ETag and Last-Modified; 304 for who has the card."),
    # 9 JSON-RPC
    "rpc.methods": Requirement("9.4", "MUST", "Each operation is the method of its name."),
    "rpc.envelope": Requirement("9.3", "MUST", "Requests are JSON-RPC 2.0; the id comes back as it was."),
    "rpc.streams": Requirement("9.4.2", "MUST", "Each event is a JSON-RPC answer with the id of the request."),
    "rpc.errors": Requirement("9.5", "MUST", "Faults have their codes; data is an array of typed objects."),
    # 11 REST
    "rest.media-type": Requirement(
        "11.1", "SHOULD", "application/a2a+json for whoever speaks or accepts it, else application/json."
    ),
    "rest.query": Requirement("11.5", "MUST", "Query parameters are camelCase members, as strings."),
    "rest.errors": Requirement("11.6", "MUST", "Errors are google.rpc.Status with an ErrorInfo."),
    "rest.routes": Requirement("11.3", "MUST", "Each operation is at its method and path."),
    "rest.stream-end": Requirement("11.7", "MUST", "A stream of a send closes where the task waits for its caller."),
    # 13 Security
    "security.scope": Requirement("13.1", "MUST", "Every operation reaches the caller's tasks only."),
    "security.limits": Requirement("13.4", "SHOULD", "What is too large or too deep is refused."),
    "security.safe-failures": Requirement("13.4", "MUST", "What failed inside is not shown to the caller."),
    "security.secrets": Requirement("13.4", "MUST", "Logs hold no credentials.", "no test reads the log"),
    "security.extended-card": Requirement("13.3", "MUST", "An extended card is for the authenticated.", NO_AUTH),
    "security.rate": Requirement("13.4", "SHOULD", "Rates are limited.", OPERATOR),
    "security.hsts": Requirement("13.4", "SHOULD", "HSTS over HTTPS.", OPERATOR),
    "security.webhooks": Requirement("13.2", "SHOULD", "Webhooks into the own network are refused."),
    "security.retention": Requirement("13.4", "SHOULD", "Old tasks can be made to go."),
    # What this server promises besides
    "resume.exact": Requirement("event-log-resume", "OURS", "A cut stream goes on with exactly what was missed."),
    "resume.snapshot": Requirement(
        "event-log-resume", "OURS", "Below what the log keeps: a fresh Task, said to be so."
    ),
    "resume.end": Requirement("event-log-resume", "OURS", "At the end of a task that ended there is nothing to come."),
    "resume.wrong": Requirement("event-log-resume", "OURS", "What is no position of the log is refused at once."),
    "keys.once": Requirement("idempotency", "OURS", "Of sends with one key and message one runs; all get its task."),
    "keys.conflict": Requirement("idempotency", "OURS", "The key of another message is refused."),
    "keys.streams": Requirement("idempotency", "OURS", "A retried stream is the stream of the first turn."),
    "keys.freed": Requirement("idempotency", "OURS", "A send that is refused leaves its key free."),
    "keys.scope": Requirement("idempotency", "OURS", "A key means something within its tenant only."),
    "keys.outlive": Requirement("idempotency", "OURS", "A key outlives its task: a late retry never runs again."),
    "card.extensions": Requirement("3.3.4", "OURS", "What a store cannot do is neither advertised nor pretended."),
}
