"""Where a test server is, and what a test may ask of it."""

from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit, urlunsplit

import httpx
import obstore
import obstore.store
import psycopg
from psycopg import sql


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """A PostgreSQL server; `dsn` is for psycopg, `url` for SQLAlchemy, both a live database."""

    dsn: str

    @property
    def url(self) -> str:
        """The same database as SQLAlchemy spells it."""
        return self.dsn.replace("postgresql://", "postgresql+psycopg://", 1)

    def database(self, name: str) -> "PostgresAddress":
        """Address the database called `name` on the same server."""
        return PostgresAddress(urlunsplit(urlsplit(self.dsn)._replace(path=f"/{name}")))

    def create_database(self, name: str, *, template: str | None = None) -> "PostgresAddress":
        """Create a database, as a copy of `template` (with no open connection) where given."""
        statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
        if template is not None:
            statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        self._execute(statement)
        return self.database(name)

    def drop_database(self, name: str) -> None:
        """Drop a database where it exists, with whatever is still connected to it."""
        self._execute(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        )

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.dsn, connect_timeout=5, autocommit=True) as connection:
            connection.execute(statement)


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """A Redis server; `url` names its database 0."""

    url: str

    def database_url(self, index: int) -> str:
        """Address another of its databases: one for each test worker (0 to 15)."""
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{index}"))


@dataclass(frozen=True, slots=True)
class S3Address:
    """An S3 server that is addressed by path."""

    endpoint_url: str
    access_key_id: str
    secret_access_key: str
    region: str = "us-east-1"

    def bucket(self, name: str) -> obstore.store.S3Store:
        """Open a bucket with a bare obstore client: for test set-up, not for the product."""
        return obstore.store.S3Store(
            name,
            endpoint=self.endpoint_url,
            region=self.region,
            access_key_id=self.access_key_id,
            secret_access_key=self.secret_access_key,
            virtual_hosted_style_request=False,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )

    def create_bucket(self, name: str) -> str:
        """Create a bucket and give back its `s3://` URL.

        obstore has no call for it, but a PUT of the empty key is exactly that request.
        """
        request = obstore.sign(self.bucket(name), "PUT", "", timedelta(minutes=1))
        httpx.put(request, trust_env=False, timeout=10).raise_for_status()
        return f"s3://{name}"
