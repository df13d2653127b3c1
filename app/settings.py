"""Settings from the environment (prefix `DEBIAS_`), validated once at start."""

from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from pydantic import AnyHttpUrl, Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

GIB = 1024**3
MIB = 1024**2

CommaSeparated = Annotated[tuple[str, ...], NoDecode]


class Settings(BaseSettings):
    """Everything an operator can set. Paths below `home` are derived, never set one by one."""

    model_config = SettingsConfigDict(
        env_prefix="DEBIAS_", env_file=".env", extra="ignore", frozen=True, allow_inf_nan=False
    )

    home: Path = Field(
        default_factory=lambda: platformdirs.user_data_path("evenhand"),
        description="Data directory of the embedded service.",
    )
    models_dir: Path | None = Field(
        default=None, description="Directory of models for the `path` source; off unless set."
    )
    database_url: str | None = Field(
        default=None, description="`sqlite:///...` or `postgresql+psycopg://...`."
    )
    broker_url: str | None = Field(
        default=None, description="Redis of the deployment; unset: `serve` starts a private one."
    )
    store_url: str | None = Field(
        default=None, description="`file:///...` or `s3://bucket/prefix`."
    )
    s3_endpoint_url: str | None = None
    s3_region: str = "us-east-1"
    s3_force_path_style: bool = True
    s3_access_key_id: SecretStr | None = None
    s3_secret_access_key: SecretStr | None = None
    hub_endpoint: AnyHttpUrl = AnyHttpUrl("https://huggingface.co")
    hub_token: SecretStr | None = None
    hub_org_allowlist: CommaSeparated = ()
    auth_mode: Literal["keys", "disabled"] = "keys"
    secret_key: SecretStr | None = Field(
        default=None,
        description="Signs download links; comma-separated list, first is current. "
        "Without one `serve` makes one and keeps it in `home`.",
    )
    public_url: AnyHttpUrl | None = None
    trusted_proxies: CommaSeparated = ()
    lease_ttl_s: Annotated[float, Field(ge=1, le=3600)] = 60.0
    jobs_per_child: Annotated[int, Field(ge=1, le=1000)] = 1
    worker_preload: CommaSeparated = ("torch", "transformers.models.llama.modeling_llama")
    drain_timeout_s: Annotated[float, Field(ge=1)] = 120.0
    device_classes: CommaSeparated = ("cpu",)
    scratch_dir: Path | None = None
    scratch_min_free_bytes: Annotated[int, Field(ge=0)] = 10 * GIB
    max_runtime_s: Annotated[int, Field(ge=1)] = 86_400
    max_queued_total: Annotated[int, Field(ge=1)] = 10_000
    rate_limit_read: Annotated[int, Field(ge=0)] = Field(
        default=600, description="GET requests a minute for each API key; 0 for no limit."
    )
    rate_limit_write: Annotated[int, Field(ge=0)] = Field(
        default=60, description="Other requests a minute for each API key; 0 for no limit."
    )
    max_body_bytes: Annotated[int, Field(ge=1024)] = 1 * MIB
    torch_threads: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="Threads of one job; unset: all cores."
    )
    extra_methods: CommaSeparated = Field(
        default=(), description="Modules with a METHOD beside the built-in ones."
    )
    metrics_port: Annotated[int, Field(ge=0, le=65535)] | None = Field(
        default=None, description="Serve /metrics on this port instead of the API's."
    )
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "json", "console"] = "auto"

    @field_validator(
        "hub_org_allowlist",
        "trusted_proxies",
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

    @property
    def redis_socket(self) -> Path:
        """Socket of the private broker."""
        return self.home / "redis.sock"
