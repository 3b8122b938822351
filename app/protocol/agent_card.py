"""The agent card and what it is made of (A2A 4.4, 4.5)."""

from typing import Self

from pydantic import Field, model_validator

from app.protocol.protojson import Flag, ProtoModel, Repeated, RequiredRepeated, Struct


class StringList(ProtoModel):
    """A list of strings."""

    list: Repeated[str] = Field(default_factory=list)


class SecurityRequirement(ProtoModel):
    """Schemes that must all be satisfied, each with the scopes it needs."""

    schemes: dict[str, StringList] | None = None


class APIKeySecurityScheme(ProtoModel):
    """An API key in a header, the query or a cookie (A2A 4.5.2)."""

    description: str | None = None
    location: str
    name: str


class HTTPAuthSecurityScheme(ProtoModel):
    """HTTP authentication, such as Bearer (A2A 4.5.3)."""

    description: str | None = None
    scheme: str
    bearer_format: str | None = None


class AuthorizationCodeOAuthFlow(ProtoModel):
    """OAuth authorization code flow (A2A 4.5.8)."""

    authorization_url: str
    token_url: str
    refresh_url: str | None = None
    scopes: dict[str, str] = {}
    pkce_required: Flag | None = None


class ClientCredentialsOAuthFlow(ProtoModel):
    """OAuth client credentials flow (A2A 4.5.9)."""

    token_url: str
    refresh_url: str | None = None
    scopes: dict[str, str] = {}


class ImplicitOAuthFlow(ProtoModel):
    """OAuth implicit flow; deprecated by A2A."""

    authorization_url: str | None = None
    refresh_url: str | None = None
    scopes: dict[str, str] | None = None


class PasswordOAuthFlow(ProtoModel):
    """OAuth password flow; deprecated by A2A."""

    token_url: str | None = None
    refresh_url: str | None = None
    scopes: dict[str, str] | None = None


class DeviceCodeOAuthFlow(ProtoModel):
    """OAuth device code flow, RFC 8628 (A2A 4.5.10)."""

    device_authorization_url: str
    token_url: str
    refresh_url: str | None = None
    scopes: dict[str, str] = {}


class _OneOf(ProtoModel):
    @model_validator(mode="after")
    def _holds_one_member(self) -> Self:
        members = type(self).model_fields
        if sum(getattr(self, name) is not None for name in members) != 1:
            raise ValueError("must have exactly one of " + ", ".join(members))
        return self


class OAuthFlows(_OneOf):
    """Exactly one OAuth 2.0 flow (A2A 4.5.7)."""

    authorization_code: AuthorizationCodeOAuthFlow | None = None
    client_credentials: ClientCredentialsOAuthFlow | None = None
    implicit: ImplicitOAuthFlow | None = None
    password: PasswordOAuthFlow | None = None
    device_code: DeviceCodeOAuthFlow | None = None


class OAuth2SecurityScheme(ProtoModel):
    """OAuth 2.0 (A2A 4.5.4)."""

    description: str | None = None
    flows: OAuthFlows
    oauth2_metadata_url: str | None = None


class OpenIdConnectSecurityScheme(ProtoModel):
    """OpenID Connect (A2A 4.5.5)."""

    description: str | None = None
    open_id_connect_url: str


class MutualTlsSecurityScheme(ProtoModel):
    """Mutual TLS (A2A 4.5.6)."""

    description: str | None = None


class SecurityScheme(_OneOf):
    """Exactly one way to authenticate (A2A 4.5.1)."""

    api_key_security_scheme: APIKeySecurityScheme | None = None
    http_auth_security_scheme: HTTPAuthSecurityScheme | None = None
    oauth2_security_scheme: OAuth2SecurityScheme | None = None
    open_id_connect_security_scheme: OpenIdConnectSecurityScheme | None = None
    mtls_security_scheme: MutualTlsSecurityScheme | None = None


class AgentInterface(ProtoModel):
    """A URL, and the binding and version spoken there (A2A 4.4.6)."""

    url: str
    protocol_binding: str
    """`JSONRPC`, `GRPC`, `HTTP+JSON`, or a URI of another binding."""
    tenant: str | None = None
    protocol_version: str


class AgentProvider(ProtoModel):
    """Who provides the agent (A2A 4.4.2)."""

    url: str
    organization: str


class AgentExtension(ProtoModel):
    """A protocol extension that the agent supports (A2A 4.4.4)."""

    uri: str = ""
    description: str | None = None
    required: Flag | None = None
    params: Struct | None = None


class AgentCapabilities(ProtoModel):
    """Optional capabilities (A2A 4.4.3)."""

    streaming: Flag | None = None
    push_notifications: Flag | None = None
    extensions: Repeated[AgentExtension] = Field(default_factory=list)
    extended_agent_card: Flag | None = None


class AgentSkill(ProtoModel):
    """One thing that the agent can do (A2A 4.4.5)."""

    id: str
    name: str
    description: str
    tags: RequiredRepeated[str] = Field(default_factory=list)
    examples: Repeated[str] = Field(default_factory=list)
    input_modes: Repeated[str] = Field(default_factory=list)
    """Media types; empty means the card's `default_input_modes`."""
    output_modes: Repeated[str] = Field(default_factory=list)
    security_requirements: Repeated[SecurityRequirement] = Field(default_factory=list)


class AgentCardSignature(ProtoModel):
    """A JWS over the card, RFC 7515 (A2A 4.4.7)."""

    protected: str
    signature: str
    header: Struct | None = None


class AgentCard(ProtoModel):
    """Who an agent is, what it can do and how to reach it (A2A 4.4.1).

    An agent file gives name, description, version and skills; the server adds the interfaces, the capabilities and
    the security schemes from what is really wired.
    """

    name: str
    description: str
    supported_interfaces: RequiredRepeated[AgentInterface] = Field(default_factory=list)
    """In order of preference."""
    provider: AgentProvider | None = None
    version: str
    documentation_url: str | None = None
    capabilities: AgentCapabilities = AgentCapabilities()
    security_schemes: dict[str, SecurityScheme] | None = None
    security_requirements: Repeated[SecurityRequirement] = Field(default_factory=list)
    default_input_modes: RequiredRepeated[str] = Field(default_factory=list)
    """Media types accepted by every skill that names none."""
    default_output_modes: RequiredRepeated[str] = Field(default_factory=list)
    skills: RequiredRepeated[AgentSkill] = Field(default_factory=list)
    signatures: Repeated[AgentCardSignature] = Field(default_factory=list)
    icon_url: str | None = None
