"""The running application of the API tests, for contracts that are held to the real thing."""

from tests.integration.api.conftest import app, caller, hub, live

__all__ = ["app", "caller", "hub", "live"]
