"""The agent card, the OpenAPI document, what a balancer asks."""

from email.utils import parsedate_to_datetime

import pytest
from openapi_spec_validator import validate

from app.protocol.extensions import IDEMPOTENCY_EXTENSION_URI, RESUME_EXTENSION_URI
from tests.conftest import Api
from tests.requirements import requirement

CARD = "/.well-known/agent-card.json"


@requirement("card.true", "bindings.declared")
async def test_the_card_says_what_the_server_does(api: Api) -> None:
    card = (await api.get(CARD)).json()
    assert card["name"] == "Test agent"
    assert card["supportedInterfaces"] == [
        {"url": "http://127.0.0.1:8000", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        {"url": "http://127.0.0.1:8000/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
    ]
    capabilities = card["capabilities"]
    assert capabilities["streaming"] is True
    assert capabilities["pushNotifications"] is False
    assert {extension["uri"] for extension in capabilities["extensions"]} == {
        IDEMPOTENCY_EXTENSION_URI,
        RESUME_EXTENSION_URI,
    }
    assert card["defaultInputModes"] == card["defaultOutputModes"] == ["text/plain"]


@requirement("card.place")
async def test_the_card_needs_no_version_header(api: Api) -> None:
    del api.http.headers["A2A-Version"]
    assert (await api.get(CARD)).status_code == 200


@requirement("card.cache")
async def test_the_card_can_be_cached(api: Api) -> None:
    response = await api.get(CARD)
    etag, modified = response.headers["etag"], response.headers["last-modified"]
    assert etag.startswith('"')
    assert "max-age" in response.headers["cache-control"]
    assert parsedate_to_datetime(modified).tzinfo is not None
    for headers in (
        {"If-None-Match": etag},
        {"If-None-Match": f'"other", W/{etag}'},
        {"If-None-Match": "*"},
        {"If-Modified-Since": modified},
    ):
        cached = await api.http.get(CARD, headers=headers)
        assert (cached.status_code, cached.content) == (304, b"")
        assert cached.headers["etag"] == etag
    for headers in (
        {"If-None-Match": '"other"'},
        {"If-None-Match": '"other"', "If-Modified-Since": modified},
        {"If-Modified-Since": "Thu, 01 Jan 1970 00:00:00 GMT"},
        {"If-Modified-Since": "yesterday"},
    ):
        assert (await api.http.get(CARD, headers=headers)).status_code == 200


@requirement("rest.routes")
async def test_the_openapi_document_is_valid_and_tells_what_is_true(api: Api) -> None:
    document = (await api.get("/openapi.json")).json()
    validate(document)
    operations = {
        operation["operationId"].split("_")[0]: operation
        for path in document["paths"].values()
        for operation in path.values()
    }
    assert {
        "SendMessage",
        "SendStreamingMessage",
        "GetTask",
        "ListTasks",
        "CancelTask",
        "SubscribeToTask",
        "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig",
        "GetExtendedAgentCard",
    } <= set(operations)
    assert "422" not in str(document["paths"])
    send = operations["SendMessage"]
    assert send["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/SendMessageRequest"
    }
    version = send["parameters"][0]
    assert (version["name"], version["schema"]["default"]) == ("A2A-Version", "1.0")
    for name, operation in operations.items():
        assert operation["summary"], name
        assert operation["description"], name


async def test_the_example_of_the_document_works(api: Api) -> None:
    document = (await api.get("/openapi.json")).json()
    for path in ("/message:send", "/message:stream"):
        example = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["example"]
        assert (await api.post(path, example)).status_code == 200


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
async def test_the_documents_have_pages(api: Api, path: str) -> None:
    assert (await api.get(path)).status_code == 200


async def test_the_balancer_is_answered(api: Api) -> None:
    assert (await api.get("/healthz")).json() == {"status": "ok"}
    assert (await api.get("/readyz")).json() == {"status": "ready"}
