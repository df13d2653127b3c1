"""Settings from the environment (prefix `DEBIAS_`), validated once at start."""

import re
from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from pydantic import AnyHttpUrl, DirectoryPath, Field, FilePath, SecretStr, field_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
)

GIB = 1024**3
MIB = 1024**2

# `*` is left out on purpose: a service without keys would answer every page.
_ORIGIN = re.compile(r"https?://[^/*\s?#@]+")

CommaSeparated = Annotated[tuple[str, ...], NoDecode]


class Settings(BaseSettings):
    """Everything an operator can set. Paths below `home` are derived, never set one by one."""

    model_config = SettingsConfigDict(
        env_prefix="DEBIAS_", env_file=".env", extra="ignore", frozen=True, allow_inf_nan=False
    )

    home: Path = Field(
        default_factory=lambda: platformdirs.user_data_path("evenhand"),
        description="Data directory: the default place of database, objects, scratch and cache.",
    )
    models_dir: Path | None = Field(
        default=None, description="Directory of models for the `path` source; off unless set."
    )
    database_url: str | None = Field(
        default=None,
        description="`sqlite:///...` or `postgresql+psycopg://...`; unset: SQLite in `home`.",
    )
    broker_url: str | None = Field(
        default=None, description="Redis of the deployment; unset: `serve` starts a private one."
    )
    store_url: str | None = Field(
        default=None,
        description="`file:///...` or `s3://bucket/prefix`; unset: a directory in `home`.",
    )
    s3_endpoint_url: str | None = Field(
        default=None, description="URL of an S3-compatible store; unset: AWS."
    )
    s3_region: str = Field(default="us-east-1", description="Region of the bucket.")
    s3_force_path_style: bool = Field(
        default=True, description="Put the bucket in the path of URLs, not in the host name."
    )
    s3_access_key_id: SecretStr | None = Field(
        default=None, description="Access key of the store; unset: as the machine provides."
    )
    s3_secret_access_key: SecretStr | None = Field(
        default=None, description="Secret of the access key."
    )
    hub_endpoint: AnyHttpUrl = Field(
        default=AnyHttpUrl("https://huggingface.co"),
        description="The model hub, or a mirror of it.",
    )
    hub_token: SecretStr | None = Field(
        default=None, description="Token for gated and private models; sent to the hub only."
    )
    hub_ca_bundle: FilePath | None = Field(
        default=None,
        description="Certificates (PEM) of authorities to trust for the hub besides the usual.",
    )
    hub_cache_max_bytes: Annotated[int, Field(ge=0)] = Field(
        default=50 * GIB,
        description="Size that the cache of hub files is cut to, least recently used models first.",
    )
    hub_org_allowlist: CommaSeparated = Field(
        default=(), description="Organisations whose models may be used; empty: all."
    )
    max_model_bytes: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Largest model, by all its files, that a job may name; unset: no limit.",
    )
    auth_mode: Literal["keys", "disabled"] = Field(
        default="keys",
        description="`disabled` asks nobody for a key; the service then listens on loopback only.",
    )
    secret_key: SecretStr | None = Field(
        default=None,
        description="Signs download links and encrypts the secrets of projects; comma-separated "
        "list, first is current. The API and the workers need the same. Without one `serve` makes "
        "one and keeps it in `home`.",
    )
    secrets_dir: DirectoryPath | None = Field(
        default=None,
        description="Directory of mounted secrets: files named like variables, such as "
        "`DEBIAS_SECRET_KEY`. The environment and `.env` win.",
    )
    public_url: AnyHttpUrl | None = Field(
        default=None,
        description="URL under which clients reach the API; used in links. Unset, links begin with "
        "the `Host` of the request.",
    )
    trusted_proxies: CommaSeparated = Field(
        default=(),
        description="Addresses whose `X-Forwarded-*` headers tell the client and the scheme.",
    )
    cors_origins: CommaSeparated = Field(
        default=(),
        description="Origins whose pages may call the API with a key, such as "
        "`https://ui.example.org`; empty: none.",
    )
    lease_ttl_s: Annotated[float, Field(ge=1, le=3600)] = Field(
        default=60.0,
        description="How long a silent worker keeps its job; all other periods follow from it.",
    )
    jobs_per_child: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1, description="Jobs that one child process runs before it is replaced."
    )
    worker_preload: CommaSeparated | None = Field(
        default=None,
        description=(
            "Modules that a fresh child imports while it waits for its job; unset: the engines on "
            "offer and the Llama classes of transformers."
        ),
    )
    drain_timeout_s: Annotated[float, Field(ge=1)] = Field(
        default=120.0, description="How long a stopping worker may take to give its job back."
    )
    device_classes: CommaSeparated = Field(
        default=("cpu",),
        description="Classes that jobs may ask for. `auto` is the one that the method prefers, "
        "else the first.",
    )
    scratch_dir: Path | None = Field(
        default=None, description="Where attempts work; unset: a directory in `home`."
    )
    scratch_min_free_bytes: Annotated[int, Field(ge=0)] = Field(
        default=10 * GIB, description="A worker with less free scratch space takes no job."
    )
    max_runtime_s: Annotated[int, Field(ge=1)] = Field(
        default=86_400, description="Longest run time that a job may ask for, and the default."
    )
    max_queued_total: Annotated[int, Field(ge=1)] = Field(
        default=10_000, description="Waiting jobs of all projects; more are refused."
    )
    rate_limit_read: Annotated[int, Field(ge=0)] = Field(
        default=600, description="GET requests a minute for each API key; 0 for no limit."
    )
    rate_limit_write: Annotated[int, Field(ge=0)] = Field(
        default=60, description="Other requests a minute for each API key; 0 for no limit."
    )
    max_body_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=1 * MIB, description="Largest request body."
    )
    torch_threads: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Threads of one job; unset: all cores."
    )
    extra_methods: CommaSeparated = Field(
        default=(), description="Modules with a METHOD beside the built-in ones."
    )
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        default=None, description="Serve /metrics on this port instead of the API's."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe lines that go to stderr."
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto", description="`auto`: readable on a terminal, JSON elsewhere."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read the directory of secrets that the other sources name."""
        found = {**dotenv_settings(), **env_settings()}.get("secrets_dir")
        if found and Path(found).is_dir():  # else its own check says what is wrong
            file_secret_settings = SecretsSettingsSource(settings_cls, secrets_dir=found)
        return init_settings, env_settings, dotenv_settings, file_secret_settings

    @field_validator(
        "hub_org_allowlist",
        "trusted_proxies",
        "cors_origins",
        "worker_preload",
        "device_classes",
        "extra_methods",
        mode="before",
    )
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("secret_key")
    @classmethod
    def _blank_is_none(cls, value: SecretStr | None) -> SecretStr | None:
        return value if value and value.get_secret_value().strip(", ") else None

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(f"{origin!r} is no origin: give scheme and host, without a path")
        return value

    @property
    def secret_keys(self) -> tuple[str, ...]:
        """The secret keys, the current one first; empty when none is set."""
        text = self.secret_key.get_secret_value() if self.secret_key else ""
        return tuple(part.strip() for part in text.split(",") if part.strip())

    @property
    def secret_values(self) -> tuple[str, ...]:
        """All secrets among the settings, for logs to hide."""
        found = (getattr(self, name) for name in type(self).model_fields)
        texts = [value.get_secret_value() for value in found if isinstance(value, SecretStr)]
        return (*texts, *self.secret_keys)

    @property
    def resolved_database_url(self) -> str:
        """The database in use: the one set, else SQLite below `home`."""
        return self.database_url or f"sqlite:///{self.home / 'debias.db'}"

    @property
    def resolved_store_url(self) -> str:
        """The object store in use: the one set, else a directory below `home`."""
        return self.store_url or f"file://{self.home / 'objects'}"

    @property
    def resolved_scratch_dir(self) -> Path:
        """Where attempts work."""
        return self.scratch_dir or self.home / "scratch"

    @property
    def hub_cache_dir(self) -> Path:
        """Where fetched hub files are kept."""
        return self.home / "hub-cache"
