"""The four operations on push notification configurations, and what a send brings of them (A2A 3.1.7 to 3.1.10)."""

import base64
import binascii
import hashlib
import re
import uuid
from collections.abc import Callable
from typing import Final, Protocol

import orjson

from app.protocol.errors import (
    FieldViolation,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotFoundError,
)
from app.protocol.identity import Owner
from app.protocol.push import TaskPushNotificationConfig
from app.protocol.requests import (
    DEFAULT_PAGE_SIZE,
    MAX_PAGE_SIZE,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
)
from app.service.turns import Caller
from app.store.push_configs import PushConfigStore, TooManyPushConfigsError, config_key

MAX_TOKEN_LENGTH: Final = 1_024
MAX_CREDENTIALS_LENGTH: Final = 4_096
INLINE: Final = "configuration.taskPushNotificationConfig"
"""Where a send has its configuration."""

_SCHEME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_HEADER_VALUE: Final = re.compile(r"[!-~]([ -~\t]*[!-~])?")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Deliveries(Protocol):
    """Who calls the webhooks; the worker room implements it."""

    async def changed(self, task_id: str, config_id: str) -> None:
        """A configuration was created, replaced or removed: from the return on, this process calls it as it now is."""


class PushConfigService:
    """Push notification configurations of a server that sends notifications, or of one that does not."""

    def __init__(
        self,
        configs: PushConfigStore | None,
        *,
        check_url: Callable[[str], None],
        deliveries: Deliveries | None,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        """`configs` and `deliveries` are `None` where no notifications are sent.

        `check_url` raises `ValueError` for a URL that may not be called, without asking the network.
        """
        self._configs = configs
        self._check_url = check_url
        self._deliveries = deliveries
        self._new_id = new_id

    def require(self) -> PushConfigStore:
        """Where configurations are kept; to be asked for before anything else is looked at (A2A 3.3.4).

        Raises:
            PushNotificationNotSupportedError: this server sends no notifications.
        """
        if self._configs is None:
            raise PushNotificationNotSupportedError
        return self._configs

    async def create_task_push_notification_config(
        self, caller: Caller, config: TaskPushNotificationConfig
    ) -> TaskPushNotificationConfig:
        """CreateTaskPushNotificationConfig (A2A 3.1.7): what is logged from now on goes to the webhook.

        The client's id is kept, and one that is taken is replaced. The answer holds no credentials.

        Raises:
            PushNotificationNotSupportedError: this server sends no notifications.
            InvalidParamsError: the webhook may not be called, a field cannot be sent on, or there are too many.
            TaskNotFoundError: the caller has no such task.
        """
        configs = self.require()
        if config.task_id is None:
            raise InvalidParamsError.of("taskId", "is required")
        config = self._checked(config, "", config.task_id)
        try:
            if not await configs.put_push_config(caller.owner, config):
                raise TaskNotFoundError
        except TooManyPushConfigsError as error:
            raise too_many(error) from None
        await self.changed(config)
        return _without_secrets(config)

    async def get_task_push_notification_config(
        self, caller: Caller, request: GetTaskPushNotificationConfigRequest
    ) -> TaskPushNotificationConfig:
        """GetTaskPushNotificationConfig (A2A 3.1.8), without credentials.

        Raises:
            PushNotificationNotSupportedError: this server sends no notifications.
            TaskNotFoundError: the caller has no such configuration, or no such task.
        """
        config = await self.require().get_push_config(caller.owner, request.task_id, request.id)
        if config is None:
            raise TaskNotFoundError
        return _without_secrets(config)

    async def list_task_push_notification_configs(
        self, caller: Caller, request: ListTaskPushNotificationConfigsRequest
    ) -> ListTaskPushNotificationConfigsResponse:
        """ListTaskPushNotificationConfigs (A2A 3.1.9): one page, by id, without credentials.

        Raises:
            PushNotificationNotSupportedError: this server sends no notifications.
            InvalidParamsError: the page is not one of this listing.
            TaskNotFoundError: the caller has no such task.
        """
        configs = self.require()
        size = request.page_size or DEFAULT_PAGE_SIZE
        if not 1 <= size <= MAX_PAGE_SIZE:
            raise InvalidParamsError.of("pageSize", f"must be between 1 and {MAX_PAGE_SIZE}")
        last = _decode_token(request.page_token, caller.owner, request.task_id)
        found = await configs.list_push_configs(caller.owner, request.task_id)
        if found is None:
            raise TaskNotFoundError
        rest = [config for config in found if last is None or (config.id or "") > last]
        page = rest[:size]
        token = _encode_token(page[-1].id or "", caller.owner, request.task_id) if len(rest) > size else None
        return ListTaskPushNotificationConfigsResponse(
            configs=[_without_secrets(config) for config in page], next_page_token=token
        )

    async def delete_task_push_notification_config(
        self, caller: Caller, request: DeleteTaskPushNotificationConfigRequest
    ) -> None:
        """DeleteTaskPushNotificationConfig (A2A 3.1.10): nothing more is sent; one that is not there is no error.

        Raises:
            PushNotificationNotSupportedError: this server sends no notifications.
            TaskNotFoundError: the caller has no such task.
        """
        if not await self.require().delete_push_config(caller.owner, request.task_id, request.id):
            raise TaskNotFoundError
        if self._deliveries is not None:
            await self._deliveries.changed(request.task_id, request.id)

    def inline(self, config: TaskPushNotificationConfig, task_id: str | None) -> TaskPushNotificationConfig:
        """The configuration that a send brings for the task it names, if it names one; it gets an id.

        Raises:
            PushNotificationNotSupportedError: this server sends no notifications.
            InvalidParamsError: the webhook may not be called, a field cannot be sent on, or another task is named.
        """
        self.require()
        if config.task_id is not None and config.task_id != task_id:
            raise InvalidParamsError.of(f"{INLINE}.taskId", "is not the task of the message")
        return self._checked(config.model_copy(update={"tenant": None}), f"{INLINE}.", task_id)

    async def changed(self, config: TaskPushNotificationConfig) -> None:
        """Say that a configuration has been stored."""
        if self._deliveries is not None:
            await self._deliveries.changed(*config_key(config))

    def _checked(
        self, config: TaskPushNotificationConfig, path: str, task_id: str | None
    ) -> TaskPushNotificationConfig:
        violations = []
        try:
            self._check_url(config.url)
        except ValueError as error:
            violations.append(FieldViolation(f"{path}url", str(error)))
        if config.id is not None and _CONTROL.search(config.id):
            violations.append(FieldViolation(f"{path}id", "must not hold control characters"))
        if config.token is not None and not _is_header_value(config.token, MAX_TOKEN_LENGTH):
            violations.append(FieldViolation(f"{path}token", _MUST_FIT.format(MAX_TOKEN_LENGTH)))
        if (authentication := config.authentication) is not None:
            if not _SCHEME.fullmatch(authentication.scheme):
                violations.append(FieldViolation(f"{path}authentication.scheme", "must be an HTTP scheme's name"))
            credentials = authentication.credentials
            if credentials is not None and not _is_header_value(credentials, MAX_CREDENTIALS_LENGTH):
                field = f"{path}authentication.credentials"
                violations.append(FieldViolation(field, _MUST_FIT.format(MAX_CREDENTIALS_LENGTH)))
        if violations:
            raise InvalidParamsError(violations=violations)
        return config.model_copy(update={"id": config.id or self._new_id(), "task_id": task_id})


_MUST_FIT: Final = "must fit into an HTTP header: 1 to {} printable ASCII characters"


def too_many(error: TooManyPushConfigsError, field: str = "id") -> InvalidParamsError:
    """A store's refusal, as a client gets it."""
    return InvalidParamsError.of(field, f"is one too many: {error}")


def _is_header_value(text: str, longest: int) -> bool:
    return len(text) <= longest and _HEADER_VALUE.fullmatch(text) is not None


def _without_secrets(config: TaskPushNotificationConfig) -> TaskPushNotificationConfig:
    authentication = config.authentication
    if authentication is not None:
        authentication = authentication.model_copy(update={"credentials": None})
    return config.model_copy(update={"token": None, "authentication": authentication})


def _encode_token(last_id: str, owner: Owner, task_id: str) -> str:
    fields = [last_id, _digest(owner, task_id)]
    return base64.urlsafe_b64encode(orjson.dumps(fields)).decode("ascii").rstrip("=")


def _decode_token(text: str | None, owner: Owner, task_id: str) -> str | None:
    if not text:
        return None
    try:
        last_id, digest = orjson.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (ValueError, TypeError, binascii.Error):
        raise InvalidParamsError.of("pageToken", "is not a token of this server") from None
    if not isinstance(last_id, str) or digest != _digest(owner, task_id):
        raise InvalidParamsError.of("pageToken", "belongs to another listing")
    return last_id


def _digest(owner: Owner, task_id: str) -> str:
    return hashlib.sha256(orjson.dumps([*owner, task_id])).hexdigest()[:16]
