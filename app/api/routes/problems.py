"""One page for each problem code: what `type` of a problem document points to."""

import html
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import HTMLResponse, JSONResponse, Response

from app.api.negotiation import JSON, Represents
from app.api.problems import all_problems, first_sentence, media, public_problems
from app.domain.errors import NotFound
from app.schemas.problems import ProblemPage

router = APIRouter(prefix="/problems", tags=["system"])
HTML = "text/html"
CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 1rem/1.5 system-ui; max-width: 40rem; margin: 4rem auto; padding: 0 1rem }}
</style></head>
<body><h1>{title}</h1><p><code>{code}</code>, HTTP {status}</p><p>{text}</p></body>
</html>
"""


@router.get(
    "/{code}",
    operation_id="getProblem",
    summary="Explain a problem code",
    response_model=ProblemPage,
    responses=media(HTML) | public_problems(NotFound),
)
def get_problem(code: str, media_type: Annotated[str, Depends(Represents(HTML, JSON))]) -> Response:
    """Say what a problem code means and what to do, as a page or as JSON."""
    kind = all_problems().get(code)
    if kind is None:
        raise NotFound("There is no such problem code.")
    text = first_sentence(kind)
    if media_type == JSON:
        page = ProblemPage(code=code, title=kind.title, status=kind.status, explanation=text)
        return JSONResponse(page.model_dump(mode="json"))
    escaped = html.escape(text)
    content = PAGE.format(title=kind.title, code=code, status=kind.status, text=escaped)
    return HTMLResponse(content, headers={"Content-Security-Policy": CONTENT_POLICY})
