"""Where webhooks may be called: public addresses over http and https, and what the operator allows besides.

A URL is looked at when a configuration is created, without asking the network, and at every delivery. What a name
resolves to is checked on every connection, and the connection goes to the very address that was checked.
"""

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple, Self

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

MAX_URL_LENGTH: Final = 2_048
MAX_NAME_LENGTH: Final = 253
DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_URL: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<authority>[^/?#]*)(?P<path>/[^?#]*)?(?P<query>\?[^#]*)?(?:#.*)?"
)
_AUTHORITY: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5})?)?")
_PRINTABLE: Final = re.compile(r"[!-~]+")
_LABEL: Final = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC_LABEL: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_DOTTED: Final = re.compile(r"(0|[1-9][0-9]{0,2})(\.(0|[1-9][0-9]{0,2})){3}")
_LOCALHOST: Final = (ip_address("127.0.0.1"), ip_address("::1"))

_METADATA: Final = frozenset(
    map(
        ip_address,
        (
            "100.100.100.200",
            "168.63.129.16",
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "192.0.0.192",
            "fd00:ec2::23",
            "fd00:ec2::254",
            "fd20:ce::254",
        ),
    )
)
"""What clouds tell their machines' secrets at. No allow-list opens these."""

_REFUSED: Final[Sequence[tuple[Network, str]]] = [
    (ip_network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "an unspecified"),
        ("10.0.0.0/8", "a private"),
        ("100.64.0.0/10", "a carrier's private"),
        ("127.0.0.0/8", "a loopback"),
        ("169.254.0.0/16", "a link-local"),
        ("172.16.0.0/12", "a private"),
        ("192.0.0.0/24", "a reserved"),
        ("192.0.2.0/24", "a documentation"),
        ("192.88.99.0/24", "a 6to4 relay"),
        ("192.168.0.0/16", "a private"),
        ("198.18.0.0/15", "a benchmarking"),
        ("198.51.100.0/24", "a documentation"),
        ("203.0.113.0/24", "a documentation"),
        ("224.0.0.0/4", "a multicast"),
        ("240.0.0.0/4", "a reserved"),
        ("::/128", "an unspecified"),
        ("::1/128", "a loopback"),
        ("::ffff:0:0/96", "an IPv4-mapped"),
        ("::/96", "an IPv4-compatible"),
        ("64:ff9b::/96", "a NAT64"),
        ("64:ff9b:1::/48", "a NAT64"),
        ("2001::/32", "a Teredo"),
        ("2001::/23", "a reserved"),
        ("2001:db8::/32", "a documentation"),
        ("2002::/16", "a 6to4"),
        ("3fff::/20", "a documentation"),
        ("fc00::/7", "a private"),
        ("fe80::/10", "a link-local"),
        ("fec0::/10", "a private"),
        ("ff00::/8", "a multicast"),
    )
]
"""The first that matches tells the kind."""

_GLOBAL_IPV6: Final = ip_network("2000::/3")
"""All that has been given out for the internet; what is outside is reserved."""


class RefusedReceiverError(ValueError):
    """A webhook that may not be called; the message says why, without the URL."""


class Target(NamedTuple):
    """A URL, read by nobody but us."""

    scheme: str
    host: str
    """Lower case, without brackets."""
    port: int
    path: str
    """With the query; what is asked for."""

    @property
    def origin(self) -> str:
        """Scheme, host and port: what answers."""
        return f"{self.scheme}://{self.netloc}"

    @property
    def netloc(self) -> str:
        """Host and port as the `Host` header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


class EgressRules:
    """What may be called."""

    def __init__(self, names: Sequence[str] = (), networks: Sequence[Network] = ()) -> None:
        self._names = frozenset(names)
        self._networks = tuple(networks)

    @classmethod
    def parse(cls, allowed: str) -> Self:
        """From a comma list of host names, addresses and networks that may be called although they are not public.

        Raises:
            ValueError: an item is none of these; the message names it.
        """
        names: list[str] = []
        networks: list[Network] = []
        for item in filter(None, (part.strip().lower() for part in allowed.split(","))):
            try:
                networks.append(ip_network(item.strip("[]")))
            except ValueError:
                if not _is_name(item):
                    raise ValueError(f"{item!r} is neither a host name nor an address nor a network") from None
                names.append(item)
        return cls(names, networks)

    def target(self, url: str) -> Target:
        """Read a URL and refuse what needs no network to be refused.

        Raises:
            RefusedReceiverError: it is not http or https, holds a user, or names an address that may not be called.
        """
        if len(url) > MAX_URL_LENGTH:
            raise RefusedReceiverError(f"must have at most {MAX_URL_LENGTH} characters")
        if not _PRINTABLE.fullmatch(url) or "\\" in url:
            raise RefusedReceiverError("must be an absolute URL of printable ASCII characters, without backslashes")
        match = _URL.fullmatch(url)
        if match is None:
            raise RefusedReceiverError("must be an absolute http or https URL")
        scheme = match["scheme"].lower()
        if scheme not in DEFAULT_PORTS:
            raise RefusedReceiverError("must be an http or https URL")
        if "@" in match["authority"]:
            raise RefusedReceiverError("must not hold a user or a password; use authentication instead")
        authority = _AUTHORITY.fullmatch(match["authority"])
        if authority is None:
            raise RefusedReceiverError("must name a host; write an internationalised one in its ASCII form")
        port = int(authority["port"] or DEFAULT_PORTS[scheme])
        if not 0 < port < 1 << 16:
            raise RefusedReceiverError("must have a port between 1 and 65535")
        host = authority["host"].lower()
        self._check_host(host)
        path = (match["path"] or "/") + (match["query"] or "")
        return Target(scheme, host.strip("[]").removesuffix("."), port, path)

    def check_url(self, url: str) -> None:
        """Raise what `target` raises."""
        self.target(url)

    def checked(self, host: str, addresses: Sequence[str]) -> Sequence[str]:
        """The addresses a host was found to have, if all of them may be called.

        Raises:
            RefusedReceiverError: there is none, or one may not be called.
        """
        if not addresses:
            raise RefusedReceiverError("its host has no address")
        for text in addresses:
            address = ip_address(text.partition("%")[0])
            if not _METADATA.isdisjoint((address, *_embedded(address))):
                raise RefusedReceiverError("its host is a machine's metadata service")
            if host not in self._names:
                self._check_address(address)
        return addresses

    def _check_host(self, host: str) -> None:
        """What can be said of a host by its name alone."""
        name = host.removesuffix(".")
        if host.startswith("["):
            try:
                address: Address = IPv6Address(host[1:-1])
            except ValueError:
                raise RefusedReceiverError("must hold a valid IPv6 address") from None
            self.checked(host[1:-1], [str(address)])
        elif _NUMERIC_LABEL.fullmatch(name.rpartition(".")[2]):
            # Whatever ends in a number is read as an IPv4 address by somebody: 127.1, 0x7f000001, 017700000001.
            if not _DOTTED.fullmatch(host):
                raise RefusedReceiverError("must write an IPv4 address as four decimal numbers")
            try:
                address = IPv4Address(host)
            except ValueError:
                raise RefusedReceiverError("must hold a valid IPv4 address") from None
            self.checked(host, [host])
        elif not _is_name(name):
            raise RefusedReceiverError("must name a host")
        elif name in self._names:
            return
        elif (name == "localhost" or name.endswith(".localhost")) and not any(map(self._allows, _LOCALHOST)):
            raise RefusedReceiverError("names a loopback address")

    def _check_address(self, address: Address) -> None:
        if self._allows(address):
            return
        for network, kind in _REFUSED:
            if address in network:
                raise RefusedReceiverError(f"names {kind} address")
        if isinstance(address, IPv6Address) and address not in _GLOBAL_IPV6:
            raise RefusedReceiverError("names a reserved address")

    def _allows(self, address: Address) -> bool:
        return any(address in network for network in self._networks)


def _embedded(address: Address) -> list[Address]:
    """The IPv4 addresses that an IPv6 address may lead to."""
    if isinstance(address, IPv4Address):
        return []
    # The low bits hold one in mapped, compatible and NAT64 addresses; elsewhere they match nothing that is looked for.
    return [IPv4Address(int(address) & 0xFFFFFFFF), *filter(None, [address.sixtofour])]


def _is_name(text: str) -> bool:
    return len(text) <= MAX_NAME_LENGTH and all(map(_LABEL.fullmatch, text.split(".")))
