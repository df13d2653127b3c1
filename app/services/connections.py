"""Open what the settings name outside of the database: the object store and the model hub."""

from app.integrations.hub import HubClient
from app.integrations.hub.transport import open_http
from app.settings import Settings
from app.storage.objects import ObjectStore, open_store
from app.storage.s3 import PATIENT, Patience


def store_of(settings: Settings, *, patience: Patience = PATIENT) -> ObjectStore:
    """Open the object store; `patience` is what a silent one is met with."""
    key_id, secret = settings.s3_access_key_id, settings.s3_secret_access_key
    return open_store(
        settings.resolved_store_url,
        endpoint_url=settings.s3_endpoint_url,
        region=settings.s3_region,
        access_key_id=key_id.get_secret_value() if key_id else None,
        secret_access_key=secret.get_secret_value() if secret else None,
        force_path_style=settings.s3_force_path_style,
        patience=patience,
    )


def hub_of(settings: Settings) -> HubClient:
    """Make the client of the model hub; the caller closes it."""
    token = settings.hub_token.get_secret_value() if settings.hub_token else None
    http = open_http(settings.hub_ca_bundle)
    return HubClient(str(settings.hub_endpoint), token=token, http=http)
