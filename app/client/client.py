"""The client: all eleven operations of a peer, over REST or JSON-RPC."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import httpx
from httpx_sse import EventSource
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json as plain_json

from app.client.errors import (
    PASSING,
    AmbiguousSendError,
    ConnectionFailedError,
    InvalidPeerResponseError,
    retry_after,
)
from app.client.retry import RetryPolicy, repeated
from app.client.streams import Progress, StreamEvent
from app.client.transports import (
    HTTP_JSON_BINDING,
    JSONRPC_BINDING,
    Call,
    JsonRpcTransport,
    RestTransport,
    Transport,
    call,
)
from app.protocol.agent_card import AgentCard
from app.protocol.errors import LogTruncatedError, UnavailableError, UnsupportedOperationError
from app.protocol.extensions import IDEMPOTENCY_EXTENSION_URI
from app.protocol.idempotency import key_of
from app.protocol.lifecycle import payload
from app.protocol.push import TaskPushNotificationConfig
from app.protocol.requests import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
)
from app.protocol.types import Message, SendMessageResponse, StreamResponse, Task

CARD_PATH: Final = "/.well-known/agent-card.json"
VERSION_HEADERS: Final = {"A2A-Version": "1.0"}
RESUME_POLICY: Final = RetryPolicy(attempts=8, initial=0.2, maximum=5.0)
"""How a stream that was cut tries to go on, where no policy was given: reading again is always safe."""
DEFAULT_TIMEOUT: Final = httpx.Timeout(60.0, connect=10.0)

Model = TypeVar("Model", bound=BaseModel)


class A2AClient:
    """Speaks to one peer.

    Nothing is sent twice unless a retry policy asks for it. With one, reads are retried; a send is retried after an
    ambiguous failure only if it carries an idempotency key and the peer is known to honour keys.
    """

    def __init__(
        self,
        url: str,
        *,
        binding: str = HTTP_JSON_BINDING,
        tenant: str | None = None,
        peer_honours_idempotency: bool = False,
        retry: RetryPolicy | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """A client of a bare endpoint. `http` stays the caller's to close.

        Raises:
            ValueError: the binding is neither `HTTP+JSON` nor `JSONRPC`.
        """
        if binding not in {HTTP_JSON_BINDING, JSONRPC_BINDING}:
            raise ValueError(f"binding must be {HTTP_JSON_BINDING} or {JSONRPC_BINDING}, not {binding}")
        self.honours_idempotency = peer_honours_idempotency
        """Whether the peer is known to honour idempotency keys."""
        self._transport: Transport = RestTransport(url) if binding == HTTP_JSON_BINDING else JsonRpcTransport(url)
        self._tenant = tenant
        self._retry = retry
        self._owned = httpx.AsyncClient(timeout=DEFAULT_TIMEOUT) if http is None else None
        self._http = http or self._owned or httpx.AsyncClient()

    @classmethod
    async def from_card(
        cls,
        url: str,
        *,
        binding: str | None = None,
        retry: RetryPolicy | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> Self:
        """A client of the agent whose card is at `url`, or at its well-known place under it.

        The card decides the endpoint and whether keys are honoured; `binding` chooses among its interfaces. Fetching it
        is a read, and repeated under the policy like any other.

        Raises:
            InvalidPeerResponseError: there is no card there, or none with a usable interface.
            ConnectionFailedError: there is nobody there.
            UnavailableError: the peer cannot answer now.
        """
        card = await fetch_card(url, http, retry)
        for interface in card.supported_interfaces:
            usable = interface.protocol_binding in {HTTP_JSON_BINDING, JSONRPC_BINDING}
            if usable and binding in {None, interface.protocol_binding} and interface.protocol_version.startswith("1."):
                return cls(
                    interface.url,
                    binding=interface.protocol_binding,
                    tenant=interface.tenant,
                    peer_honours_idempotency=any(
                        extension.uri == IDEMPOTENCY_EXTENSION_URI for extension in card.capabilities.extensions
                    ),
                    retry=retry,
                    http=http,
                )
        raise InvalidPeerResponseError(f"the card of {card.name!r} offers no A2A 1.x interface that this client speaks")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._owned is not None:
            await self._owned.aclose()

    # -- the eleven operations

    async def send_message(
        self, message: Message, configuration: SendMessageConfiguration | None = None
    ) -> Task | Message:
        """SendMessage (A2A 3.1.1).

        Raises:
            AmbiguousSendError: the connection broke and the send could not safely be repeated.
            ConnectionFailedError: the peer was never reached.
            A2AError: what the peer answered.
        """
        request = SendMessageRequest(tenant=self._tenant, message=message, configuration=configuration)
        answer = await self._call(
            call("SendMessage", request), SendMessageResponse, repeatable=self._may_repeat(message)
        )
        result = answer.task or answer.message
        assert result is not None  # noqa: S101 - the model holds exactly one
        return result

    async def send_streaming_message(
        self, message: Message, configuration: SendMessageConfiguration | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """SendStreamingMessage (A2A 3.1.2): events until the turn ends.

        A cut stream resumes by itself after the last event; where that cannot be whole, an event with `reset` shows the
        task anew. Raises as `send_message` does.
        """
        request = SendMessageRequest(tenant=self._tenant, message=message, configuration=configuration)
        progress = Progress(until_turn_ends=True)
        first = call("SendStreamingMessage", request)
        async with aclosing(self._follow(first, progress, repeatable=self._may_repeat(message))) as events:
            async for event in events:
                yield event

    async def subscribe_to_task(
        self, task_id: str, last_event_id: str | None = None
    ) -> AsyncGenerator[StreamEvent, None]:
        """SubscribeToTask (A2A 3.1.6): the task and what follows, or what follows `last_event_id`, until it ends."""
        progress = Progress(until_turn_ends=False)
        progress.last_event_id = last_event_id
        progress.begun = last_event_id is not None
        progress.task_id = task_id
        first = self._resumption(progress)
        async with aclosing(self._follow(first, progress, repeatable=True)) as events:
            async for event in events:
                yield event

    async def get_task(self, task_id: str, history_length: int | None = None) -> Task:
        """GetTask (A2A 3.1.3)."""
        request = GetTaskRequest(tenant=self._tenant, id=task_id, history_length=history_length)
        return await self._call(call("GetTask", request), Task, repeatable=True)

    async def list_tasks(self, request: ListTasksRequest | None = None) -> ListTasksResponse:
        """ListTasks (A2A 3.1.4): one page."""
        asked = (request or ListTasksRequest()).model_copy(update={"tenant": self._tenant})
        return await self._call(call("ListTasks", asked), ListTasksResponse, repeatable=True)

    async def cancel_task(self, task_id: str) -> Task:
        """CancelTask (A2A 3.1.5)."""
        request = CancelTaskRequest(tenant=self._tenant, id=task_id)
        return await self._call(call("CancelTask", request), Task, repeatable=False)

    async def create_task_push_notification_config(
        self, config: TaskPushNotificationConfig
    ) -> TaskPushNotificationConfig:
        """CreateTaskPushNotificationConfig (A2A 3.1.7)."""
        asked = config.model_copy(update={"tenant": self._tenant})
        operation = call("CreateTaskPushNotificationConfig", asked)
        return await self._call(operation, TaskPushNotificationConfig, repeatable=False)

    async def get_task_push_notification_config(self, task_id: str, config_id: str) -> TaskPushNotificationConfig:
        """GetTaskPushNotificationConfig (A2A 3.1.8)."""
        request = GetTaskPushNotificationConfigRequest(tenant=self._tenant, task_id=task_id, id=config_id)
        operation = call("GetTaskPushNotificationConfig", request)
        return await self._call(operation, TaskPushNotificationConfig, repeatable=True)

    async def list_task_push_notification_configs(
        self, task_id: str, page_size: int | None = None, page_token: str | None = None
    ) -> ListTaskPushNotificationConfigsResponse:
        """ListTaskPushNotificationConfigs (A2A 3.1.9): one page."""
        request = ListTaskPushNotificationConfigsRequest(
            tenant=self._tenant, task_id=task_id, page_size=page_size, page_token=page_token
        )
        operation = call("ListTaskPushNotificationConfigs", request)
        return await self._call(operation, ListTaskPushNotificationConfigsResponse, repeatable=True)

    async def delete_task_push_notification_config(self, task_id: str, config_id: str) -> None:
        """DeleteTaskPushNotificationConfig (A2A 3.1.10)."""
        request = DeleteTaskPushNotificationConfigRequest(tenant=self._tenant, task_id=task_id, id=config_id)
        await self._raw(call("DeleteTaskPushNotificationConfig", request), repeatable=True)

    async def get_extended_agent_card(self) -> AgentCard:
        """GetExtendedAgentCard (A2A 3.1.11)."""
        request = GetExtendedAgentCardRequest(tenant=self._tenant)
        return await self._call(call("GetExtendedAgentCard", request), AgentCard, repeatable=True)

    # -- calls

    def _may_repeat(self, message: Message) -> bool:
        return self.honours_idempotency and key_of(message) is not None

    async def _call(self, operation: Call, model: type[Model], *, repeatable: bool) -> Model:
        return _read(model, await self._raw(operation, repeatable=repeatable))

    async def _raw(self, operation: Call, *, repeatable: bool) -> Any:
        async def ask() -> Any:
            return self._transport.result(await self._send(operation, stream=False, headers=None))

        return await repeated(ask, self._retry, repeatable=repeatable)

    async def _send(self, operation: Call, *, stream: bool, headers: dict[str, str] | None) -> httpx.Response:
        request = self._transport.request(operation)
        # The client's own headers, credentials among them, go with every request.
        merged = httpx.Headers({**self._http.headers, **VERSION_HEADERS, **(headers or {})})
        merged.update(request.headers)
        request = self._http.build_request(
            request.method, request.url, content=await request.aread() or None, headers=merged
        )
        try:
            return await self._http.send(request, stream=stream)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol) as error:
            raise ConnectionFailedError(f"{request.url}: {_said(error)}") from error
        except httpx.TransportError as error:
            raise AmbiguousSendError(f"{request.url}: {_said(error)}") from error

    # -- streams

    async def _follow(self, first: Call, progress: Progress, *, repeatable: bool) -> AsyncGenerator[StreamEvent, None]:
        """The events of a stream, over as many connections as it takes."""
        policy = self._retry or RESUME_POLICY
        tried, cut = 0, False
        while True:
            # What has begun is read again, which is always safe; a send that may not have is a send.
            operation = self._resumption(progress) if progress.task_id is not None and progress.begun else first
            try:
                async with aclosing(self._stream(operation, progress)) as events:
                    async for received in events:
                        event = replace(received, resumed=cut and not received.reset)
                        tried, cut = 0, False
                        progress.note(event)
                        yield event
                        if progress.ended and operation is not first:
                            # The turn is over. The subscription that it was resumed by may stay open for the task's
                            # sake, or go on to turns that are not this stream's.
                            return
                error: Exception = AmbiguousSendError("the stream ended before its task did")
            except (ConnectionFailedError, AmbiguousSendError, UnavailableError, LogTruncatedError) as failure:
                error = failure
            if progress.ended:
                return
            tried, cut = tried + 1, progress.begun
            asked_for = self._retry is not None and (repeatable or isinstance(error, ConnectionFailedError))
            if tried >= policy.attempts or not (progress.begun or asked_for):
                raise error
            asked = error.retry_after if isinstance(error, UnavailableError) else None
            await asyncio.sleep(policy.delay(tried, asked))

    def _resumption(self, progress: Progress) -> Call:
        return call("SubscribeToTask", SubscribeToTaskRequest(tenant=self._tenant, id=progress.task_id or ""))

    async def _stream(self, operation: Call, progress: Progress) -> AsyncGenerator[StreamEvent, None]:
        """The events of one connection."""
        resumes = progress.begun
        headers = {"Accept": "text/event-stream"}
        if progress.last_event_id is not None:
            headers["Last-Event-ID"] = progress.last_event_id
        response = await self._send(operation, stream=True, headers=headers)
        try:
            if response.status_code == httpx.codes.NO_CONTENT:
                progress.ended = True
                return
            if not response.is_success or not response.headers.get("content-type", "").startswith("text/event-stream"):
                await response.aread()
                self._transport.result(response)
                raise InvalidPeerResponseError("the peer answered without a stream")
            is_first = True
            async for frame in EventSource(response).aiter_sse():
                if not frame.data:
                    continue  # a keep-alive comment and its blank line, which httpx-sse takes for an event
                event = payload(_read(StreamResponse, self._transport.event(frame.data, response)))
                reset = is_first and resumes and isinstance(event, Task)
                is_first = False
                yield StreamEvent(event, frame.id or None, reset)
        except UnsupportedOperationError as refusal:
            if not resumes or progress.task_id is None:
                raise
            # The task ended while nobody listened, and the peer does not replay the end.
            shown = StreamEvent(await self.get_task(progress.task_id), None, reset=True)
            if not progress.ends_with(shown):
                raise AmbiguousSendError("the stream was cut, and the peer does not let it be resumed") from refusal
            yield shown
        except httpx.TransportError as error:
            raise AmbiguousSendError(f"the stream was cut: {_said(error)}") from error
        finally:
            await response.aclose()


async def fetch_card(url: str, http: httpx.AsyncClient | None = None, retry: RetryPolicy | None = None) -> AgentCard:
    """The card at a URL, or at its well-known place under it.

    Raises:
        InvalidPeerResponseError: what is there is no card.
        ConnectionFailedError: there is nobody there, or the connection broke.
        UnavailableError: the peer cannot answer now.
    """
    address = url if url.endswith(".json") else url.rstrip("/") + CARD_PATH

    async def fetch() -> AgentCard:
        try:
            response = await (http or own).get(address)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise ConnectionFailedError(f"{address}: {_said(error)}") from error
        if response.status_code in PASSING:
            raise UnavailableError(f"{address}: HTTP {response.status_code}", retry_after=retry_after(response))
        if not response.is_success:
            raise InvalidPeerResponseError(f"{address}: HTTP {response.status_code}")
        return _read(AgentCard, response.content)

    async with httpx.AsyncClient(timeout=DEFAULT_TIMEOUT) as own:
        return await repeated(fetch, retry, repeatable=True)


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__


def _read(model: type[Model], value: Any) -> Model:
    try:
        return model.model_validate_json(value if isinstance(value, bytes) else plain_json(value))
    except ValidationError as error:
        raise InvalidPeerResponseError(f"the answer is no {model.__name__}: {error.errors()[0]['msg']}") from None
