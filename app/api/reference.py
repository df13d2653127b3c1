"""The API reference at `/docs`: Swagger UI from an installed package, no other host involved."""

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles

from app.api.openapi import TITLE

# Only the files of the package are used: it sets no content policy, and its page asks a validator.
ASSETS = ("fastapi_offline", "static")
CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # Swagger UI sets style attributes
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
# All paths are relative, so that the page also works below a prefix of a proxy.
PAGE = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{TITLE} API</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/assets/swagger-ui.css">
</head>
<body>
<div id="reference"></div>
<noscript>This page needs JavaScript. The document it shows is <a href="openapi.json">here</a>.
</noscript>
<script src="docs/assets/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
# Without a null for the validator, its badge would tell validator.swagger.io of this service.
SCRIPT = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#reference",
  validatorUrl: null,
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  filter: true,
  syntaxHighlight: { activated: true, theme: "idea" },
});
"""


def install_reference(app: FastAPI) -> None:
    """Serve the reference and what it loads."""
    app.add_route("/docs", _page, include_in_schema=False)
    app.add_route("/docs/start.js", _script, include_in_schema=False)
    app.mount("/docs/assets", StaticFiles(packages=[ASSETS]))


async def _page(_request: Request) -> Response:
    return HTMLResponse(PAGE, headers={"Content-Security-Policy": CONTENT_POLICY})


async def _script(_request: Request) -> Response:
    return Response(SCRIPT, media_type="text/javascript")
