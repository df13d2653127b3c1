"""The client of an S3 bucket. obstore is imported when it is made, for the reason in `objects`."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Store

MAX_RETRIES = 5


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a silent or failing bucket is waited for, for each request.

    Parameters
    ----------
    read_timeout_s
        Silence that ends a try; also in the middle of an answer.
    max_retries, retry_timeout_s
        No try begins after that many more, nor after that time.
    """

    read_timeout_s: float
    max_retries: int
    retry_timeout_s: float


# A transfer of an attempt: minutes are nothing beside the work that would be lost.
PATIENT = Patience(read_timeout_s=60, max_retries=MAX_RETRIES, retry_timeout_s=120)
# A thread of the API: after about ten seconds its client had better be told to come again.
PROMPT = Patience(read_timeout_s=5, max_retries=2, retry_timeout_s=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Location:
    """Where a bucket is and how to get in; nothing is loaded or opened before `connect`."""

    bucket: str
    prefix: str
    endpoint_url: str | None
    region: str | None
    access_key_id: str | None
    secret_access_key: str | None = field(repr=False)
    force_path_style: bool
    patience: Patience = PATIENT

    def connect(self) -> "S3Store":
        """Make the client."""
        from obstore.store import S3Store

        return S3Store(
            self.bucket,
            prefix=self.prefix or None,
            config=self._config(),
            client_options={
                "allow_http": (self.endpoint_url or "").startswith("http://"),
                # Silence ends a request, length does not: a download may take hours.
                "connect_timeout": timedelta(seconds=5),
                "read_timeout": timedelta(seconds=self.patience.read_timeout_s),
                "timeout": timedelta(days=1),
            },
            retry_config={
                # Waits grow from 0.1 s by powers of two, each with jitter.
                "max_retries": self.patience.max_retries,
                "retry_timeout": timedelta(seconds=self.patience.retry_timeout_s),
            },
        )

    def _config(self) -> "S3Config":
        config: S3Config = {
            "virtual_hosted_style_request": not self.force_path_style,
            "checksum_algorithm": "SHA256",
        }
        if self.endpoint_url is not None:
            endpoint = self.endpoint_url.rstrip("/")
            # obstore puts the bucket into the path only; into the host is left to its callers.
            if not self.force_path_style:
                endpoint = endpoint.replace("://", f"://{self.bucket}.", 1)
            config["endpoint"] = endpoint
        if self.region is not None:
            config["region"] = self.region
        if self.access_key_id is not None:
            config["access_key_id"] = self.access_key_id
        if self.secret_access_key is not None:
            config["secret_access_key"] = self.secret_access_key
        return config
