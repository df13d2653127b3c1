"""Examples of requests and responses for the OpenAPI document, by operation id."""

from typing import Any

REQUEST_EXAMPLES: dict[str, Any] = {}
RESPONSE_EXAMPLES: dict[str, dict[str, Any]] = {}
