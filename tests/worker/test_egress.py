"""Where webhooks may be called: the rules, and that what was checked is what is connected to."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from app.worker.egress import EgressRules, RefusedReceiverError
from app.worker.webhooks import Resolve, WebhookFailedError, http_webhooks
from tests.receiver import Receiver, receiving
from tests.requirements import requirement

PUBLIC = [
    "https://example.com/hook",
    "http://example.com",
    "HTTPS://Example.COM:8443/a/b?c=d&e=%20#fragment",
    "https://xn--bcher-kva.example/",
    "https://8.8.8.8/hook",
    "https://172.32.0.1/",
    "https://100.63.255.255/",
    "https://[2606:4700:4700::1111]/hook",
    "https://[2001:4860:4860::8888]:8443/",
    "https://example.com./",
    "https://1.example/",
    "https://under_score.example/",
]

REFUSED = [
    # what is no http URL
    ("ftp://example.com/", "http or https"),
    ("file:///etc/passwd", "http or https"),
    ("gopher://example.com/", "http or https"),
    ("unix:/var/run/docker.sock", "absolute"),
    ("//example.com/", "absolute"),
    ("/hook", "absolute"),
    ("", "absolute"),
    ("https://", "host"),
    ("https:///path", "host"),
    ("https://user@example.com/", "user"),
    ("https://user:password@example.com/", "user"),
    ("https://example.com@127.0.0.1/", "user"),
    ("https://example.com\\@127.0.0.1/", "printable"),
    ("https://example.com/\r\nX-Injected: 1", "printable"),
    ("https://example.com/a b", "printable"),
    ("https://\uff11\uff12\uff17.0.0.1/", "printable"),
    ("https://127\u30020\u30020\u30021/", "printable"),
    ("https://%31%32%37.0.0.1/", "host"),
    ("https://example.com:0/", "port"),
    ("https://example.com:65536/", "port"),
    ("https://example.com:http/", "host"),
    ("https://-example.com/", "host"),
    ("https://a..b/", "host"),
    ("https://" + "a" * 64 + ".example/", "host"),
    ("https://example.com/" + "a" * 2_048, "characters"),
    # addresses
    ("http://127.0.0.1/", "a loopback"),
    ("http://127.255.255.254:8080/", "a loopback"),
    ("http://localhost/", "a loopback"),
    ("http://LOCALHOST.:9000/", "a loopback"),
    ("http://api.localhost/", "a loopback"),
    ("http://0.0.0.0/", "an unspecified"),
    ("http://10.0.0.1/", "a private"),
    ("http://172.16.0.1/", "a private"),
    ("http://172.31.255.255/", "a private"),
    ("http://192.168.1.1/", "a private"),
    ("http://100.64.0.1/", "a carrier's private"),
    ("http://100.127.255.255/", "a carrier's private"),
    ("http://169.254.1.1/", "a link-local"),
    ("http://169.254.169.254/latest/meta-data/", "metadata"),
    ("http://168.63.129.16/", "metadata"),
    ("http://100.100.100.200/", "metadata"),
    ("http://[fd00:ec2::254]/", "metadata"),
    ("http://192.0.0.8/", "a reserved"),
    ("http://192.0.2.1/", "a documentation"),
    ("http://198.51.100.1/", "a documentation"),
    ("http://203.0.113.1/", "a documentation"),
    ("http://198.18.0.1/", "a benchmarking"),
    ("http://224.0.0.1/", "a multicast"),
    ("http://239.255.255.255/", "a multicast"),
    ("http://240.0.0.1/", "a reserved"),
    ("http://255.255.255.255/", "a reserved"),
    ("http://[::]/", "an unspecified"),
    ("http://[::1]/", "a loopback"),
    ("http://[0:0:0:0:0:0:0:1]/", "a loopback"),
    ("http://[::ffff:127.0.0.1]/", "an IPv4-mapped"),
    ("http://[::ffff:8.8.8.8]/", "an IPv4-mapped"),
    ("http://[::ffff:169.254.169.254]/", "metadata"),
    ("http://[::7f00:1]/", "an IPv4-compatible"),
    ("http://[64:ff9b::7f00:1]/", "a NAT64"),
    ("http://[64:ff9b::169.254.169.254]/", "metadata"),
    ("http://[64:ff9b:1::1]/", "a NAT64"),
    ("http://[2002:7f00:1::]/", "a 6to4"),
    ("http://[2002:a9fe:a9fe::]/", "metadata"),
    ("http://[2001:0:1::1]/", "a Teredo"),
    ("http://[2001:db8::1]/", "a documentation"),
    ("http://[fc00::1]/", "a private"),
    ("http://[fd12:3456::1]/", "a private"),
    ("http://[fe80::1]/", "a link-local"),
    ("http://[fe80::1%25eth0]/", "host"),
    ("http://[fec0::1]/", "a private"),
    ("http://[ff02::1]/", "a multicast"),
    ("http://[100::1]/", "a reserved"),
    ("http://[4000::1]/", "a reserved"),
    ("http://[:::1]/", "IPv6"),
    ("http://[1.2.3.4]/", "IPv6"),
    # other ways to write 127.0.0.1
    ("http://2130706433/", "four decimal numbers"),
    ("http://0x7f000001/", "four decimal numbers"),
    ("http://0x7F.0.0.1/", "four decimal numbers"),
    ("http://0177.0.0.1/", "four decimal numbers"),
    ("http://017700000001/", "four decimal numbers"),
    ("http://127.1/", "four decimal numbers"),
    ("http://127.0.0.1./", "four decimal numbers"),
    ("http://127.0.0.0x1/", "four decimal numbers"),
    ("http://256.0.0.1/", "IPv4"),
    ("http://1.2.3.4.5/", "four decimal numbers"),
    ("http://example.0x/", "four decimal numbers"),
]


@pytest.mark.parametrize("url", PUBLIC)
def test_public_places_may_be_called(url: str) -> None:
    EgressRules().check_url(url)


@requirement("security.webhooks")
@pytest.mark.parametrize(("url", "reason"), REFUSED)
def test_other_places_may_not_and_the_reason_is_said(url: str, reason: str) -> None:
    with pytest.raises(RefusedReceiverError, match=reason) as refusal:
        EgressRules().check_url(url)
    assert "password" not in str(refusal.value).replace("a user or a password", "")


@pytest.mark.parametrize(
    ("allowed", "url"),
    [
        ("localhost", "http://localhost:9000/"),
        ("127.0.0.0/8", "http://localhost:9000/"),
        ("127.0.0.1", "http://127.0.0.1:9000/"),
        ("::1", "http://[::1]:9000/"),
        ("[::1], 10.0.0.0/8", "http://10.1.2.3/"),
        ("10.0.0.0/8,Hooks.Internal", "http://hooks.internal/"),
        ("fd00::/8", "http://[fd12::1]/"),
    ],
)
def test_what_is_allowed_may_be_called(allowed: str, url: str) -> None:
    EgressRules.parse(allowed).check_url(url)


@pytest.mark.parametrize("url", ["http://127.0.0.2/", "http://10.0.0.1/", "http://localhost:1/", "http://[::1]/"])
def test_an_allowed_address_opens_no_other(url: str) -> None:
    with pytest.raises(RefusedReceiverError):
        EgressRules.parse("127.0.0.9, hooks.internal").check_url(url)


@pytest.mark.parametrize("url", ["http://169.254.169.254/", "http://[fd00:ec2::254]/", "http://[::ffff:a9fe:a9fe]/"])
def test_nothing_opens_the_metadata_of_a_machine(url: str) -> None:
    with pytest.raises(RefusedReceiverError, match="metadata"):
        EgressRules.parse("0.0.0.0/0, ::/0, 169.254.169.254").check_url(url)


@pytest.mark.parametrize("wrong", ["10.0.0.1/8", "a b", "http://x", "10.0.0.0/33", "*.example.com"])
def test_an_allow_list_that_cannot_be_read_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="neither a host name nor"):
        EgressRules.parse(f"localhost,{wrong}")


# -- connections


def answering(*answers: Sequence[str]) -> Resolve:
    """A name server that says something else each time; its last answer stays."""
    rest = list(answers)

    async def resolve(_host: str, _port: int) -> Sequence[str]:
        return rest.pop(0) if len(rest) > 1 else rest[0]

    return resolve


async def called(receiver: Receiver, resolve: Resolve, allowed: str = "127.0.0.1", host: str = "hook.example") -> int:
    async with http_webhooks(EgressRules.parse(allowed), timeout=5.0, resolve=resolve) as webhooks:
        answer = await webhooks.post(f"http://{host}:{receiver.port}/hook?x=1", {"X-Test": "yes"}, b"{}")
        return answer.status


async def test_a_request_is_whole_and_names_the_host_it_was_meant_for() -> None:
    async with receiving() as receiver:
        assert await called(receiver, answering(["127.0.0.1"])) == 200
        (request,) = receiver.requests
    assert (request.method, request.target, request.body) == ("POST", "/hook?x=1", b"{}")
    assert request.headers["host"] == f"hook.example:{receiver.port}"
    assert request.headers["x-test"] == "yes"
    assert request.headers["content-length"] == "2"
    assert "transfer-encoding" not in request.headers
    assert {"cookie", "user-agent"}.isdisjoint(request.headers)


async def test_a_name_with_one_address_that_may_not_be_called_is_not_called() -> None:
    async with receiving() as receiver:
        for addresses in (["127.0.0.1", "10.0.0.1"], ["10.0.0.1", "127.0.0.1"], ["127.0.0.1", "::1"], []):
            with pytest.raises(WebhookFailedError, match="URL"):
                await called(receiver, answering(addresses))
        assert receiver.connections == 0


async def test_a_name_that_changes_its_address_is_looked_at_again_and_never_twice_for_one_connection() -> None:
    async with receiving() as receiver:
        # A public answer to the check and a private one to the connection would be the attack; here the second look-up
        # is the next delivery's.
        resolve = answering(["127.0.0.1"], ["127.0.0.2"])
        assert await called(receiver, resolve) == 200
        with pytest.raises(WebhookFailedError, match="names a loopback address"):
            await called(receiver, resolve)
        assert receiver.connections == 1


async def test_an_allowed_name_may_be_anywhere_but_not_at_the_metadata() -> None:
    async with receiving() as receiver:
        assert await called(receiver, answering(["127.0.0.1"]), allowed="hook.example") == 200
        with pytest.raises(WebhookFailedError, match="metadata"):
            await called(receiver, answering(["127.0.0.1", "169.254.169.254"]), allowed="hook.example")


async def test_the_next_address_is_tried_where_the_first_takes_no_connection() -> None:
    async with receiving() as receiver:
        assert await called(receiver, answering(["127.0.0.3", "127.0.0.1"]), allowed="127.0.0.0/8") == 200


async def test_a_redirect_is_an_answer_and_not_followed() -> None:
    async with receiving(lambda _: (302, {"Location": "http://127.0.0.1:1/"})) as receiver:
        assert await called(receiver, answering(["127.0.0.1"])) == 302
        assert len(receiver.requests) == 1


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    async with receiving() as receiver:
        assert await called(receiver, answering(["127.0.0.1"])) == 200


async def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    async with receiving(lambda _: (200, {"Content-Length": "1000000000"})) as receiver:
        receiver.endless = True
        async with asyncio.timeout(5):
            assert await called(receiver, answering(["127.0.0.1"])) == 200


async def test_who_does_not_answer_in_time_has_failed() -> None:
    async with receiving() as receiver:
        receiver.hold.clear()
        async with http_webhooks(EgressRules.parse("127.0.0.1"), timeout=0.1) as webhooks:
            with pytest.raises(WebhookFailedError, match="in time"):
                await webhooks.post(f"http://127.0.0.1:{receiver.port}/", {}, b"{}")
        receiver.hold.set()


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("soon", None), ("-1", None), ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0), ("9" * 30, 999_999_999.0)],
)
async def test_retry_after_is_read_in_both_its_forms(header: str, seconds: float | None) -> None:
    async with (
        receiving(lambda _: (503, {"Retry-After": header})) as receiver,
        http_webhooks(EgressRules.parse("127.0.0.1"), timeout=5.0) as webhooks,
    ):
        answer = await webhooks.post(f"http://127.0.0.1:{receiver.port}/", {}, b"{}")
        assert (answer.status, answer.retry_after) == (503, seconds)


@asynccontextmanager
async def authority(folder: Path, name: str) -> AsyncIterator[tuple[ssl.SSLContext, ssl.SSLContext, list[str | None]]]:
    """TLS for a receiver of this name, for those who trust it, and the names that were asked for."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = folder / "receiver.pem"
    pem.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    asked: list[str | None] = []
    server.sni_callback = lambda _socket, asked_for, _context: asked.append(asked_for)
    yield server, ssl.create_default_context(cafile=str(pem)), asked


async def test_tls_is_with_the_host_that_was_named_at_the_address_that_was_checked(tmp_path: Path) -> None:
    async with authority(tmp_path, "hook.example") as (server, trusting, asked), receiving(tls=server) as receiver:
        rules, resolve = EgressRules.parse("127.0.0.1"), answering(["127.0.0.1"])
        async with http_webhooks(rules, timeout=5.0, resolve=resolve, tls=trusting) as webhooks:
            answer = await webhooks.post(f"https://hook.example:{receiver.port}/", {}, b"{}")
            assert (answer.status, asked) == (200, ["hook.example"])
            with pytest.raises(WebhookFailedError, match=r"(?i)certificate"):
                await webhooks.post(f"https://other.example:{receiver.port}/", {}, b"{}")
        async with http_webhooks(rules, timeout=5.0, resolve=resolve) as webhooks:
            with pytest.raises(WebhookFailedError, match=r"(?i)certificate"):
                await webhooks.post(f"https://hook.example:{receiver.port}/", {}, b"{}")
        assert len(receiver.requests) == 1
