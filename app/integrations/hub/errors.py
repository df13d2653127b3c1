"""Turn the hub's refusals into errors that say what to do.

The hub answers 401 for a repository that does not exist as well as for one that needs a token;
its `X-Error-Code` header tells the cases apart where it is sent.
"""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx

from app.domain.errors import DebiasError, Finding, ModelGated, ModelNotFound, Unavailable

_MAX_RETRY_AFTER_S = 3600
_RETRY_AFTER_S = 10
# Until an operator has changed a setting, asking again is of little use.
_MISCONFIGURED_S = 60
_BUSY = frozenset({408, 425, 429})


def unreachable(reason: str | None = None) -> Unavailable:
    """Make the error for a hub that cannot be reached, or not be read to the end."""
    return Unavailable(
        "The model hub cannot be reached"
        + (f": {reason}" if reason else "")
        + ". Send the request again later.",
        retry_after_s=_RETRY_AFTER_S,
    )


def not_a_hub(what: str) -> Unavailable:
    """Make the error for an answer that no hub gives."""
    return Unavailable(
        f"The model hub's address {what}. The operator should check DEBIAS_HUB_ENDPOINT, and that "
        "no proxy or login page stands in between.",
        retry_after_s=_MISCONFIGURED_S,
    )


def circular(host: str) -> Unavailable:
    """Make the error for redirects without an end."""
    return not_a_hub(f"redirects again and again, the last time to {host}")


def downgraded(host: str) -> Unavailable:
    """Make the error for a redirect that leaves https."""
    return not_a_hub(f"redirects from https to unprotected http on {host}, which is not followed")


def unusable_bundle(path: Path | None) -> Unavailable:
    """Make the error for authorities that cannot be read."""
    named = f"DEBIAS_HUB_CA_BUNDLE={path}" if path else "SSL_CERT_FILE or SSL_CERT_DIR"
    return Unavailable(f"{named} holds no certificates in PEM form. Correct the path or the file.")


def refusal(
    response: httpx.Response, *, repo_id: str, revision: str, path: str | None, with_token: bool
) -> DebiasError:
    """Make the error for an answer other than 2xx.

    `path` is the file that was asked for, None for the repository itself; `with_token` says
    whether the refusing host was sent a token.
    """
    status, code = response.status_code, response.headers.get("x-error-code", "")
    if status in _BUSY or status >= 500:
        return _busy(response)
    if code == "GatedRepo":
        return _gated(repo_id, with_token=with_token)
    if code == "RevisionNotFound":
        return _revision_missing(repo_id, revision)
    if code == "EntryNotFound" or (status == 404 and path is not None and not code):
        return _file_missing(repo_id, revision, path or "")
    if status == 401 and with_token and code != "RepoNotFound":
        return _bad_token()
    if status == 403:
        return _forbidden(repo_id, with_token=with_token)
    if code == "RepoNotFound" or status in (401, 404, 410):
        return _repo_missing(repo_id, with_token=with_token)
    if status == 407:
        return not_a_hub("is behind a proxy that asks for a name and a password (HTTPS_PROXY)")
    return not_a_hub(f"answers {status} to a request that every hub knows")


def _busy(response: httpx.Response) -> Unavailable:
    wait = _retry_after_s(response.headers.get("retry-after", ""))
    reason = "limits our requests" if response.status_code == 429 else "has a fault at present"
    return Unavailable(
        f"The model hub {reason}. Send the request again in {wait} s.", retry_after_s=wait
    )


def _retry_after_s(value: str) -> int:
    """Read the header's seconds or date; what is neither, or absurd, becomes a usual wait."""
    wait = _RETRY_AFTER_S
    if value.isascii() and value.isdigit():
        wait = int(value[:9])
    elif value:
        try:
            moment = parsedate_to_datetime(value)
        except ValueError:
            moment = None
        if moment is not None and moment.tzinfo is not None:
            wait = round((moment - datetime.now(UTC)).total_seconds())
    return min(max(wait, 1), _MAX_RETRY_AFTER_S)


def _gated(repo_id: str, *, with_token: bool) -> ModelGated:
    if with_token:
        message = (
            f"{repo_id} is gated, and the account of the hub token in use was not given access."
            " Accept the model's terms on its hub page with that account, then send the job again. "
            "A fine-grained token must also allow reading gated repositories."
        )
    else:
        message = (
            f"{repo_id} is gated: its owner asks everyone to accept terms first. Accept them on "
            "its hub page, and set a hub token of that account: for your project with PUT "
            "/v1/secrets/hub_token, or for all projects as the operator."
        )
    return ModelGated(message, findings=(Finding("/model/hub", "model_gated", message),))


def _bad_token() -> ModelGated:
    message = (
        "The model hub refuses the hub token in use: it is wrong, expired or revoked. Set a new "
        "one for your project with PUT /v1/secrets/hub_token; where it has none, the operator "
        "should set the service's anew, or none for public models."
    )
    return ModelGated(message, findings=(Finding("/model/hub", "hub_token_refused", message),))


def _forbidden(repo_id: str, *, with_token: bool) -> ModelGated:
    message = (
        f"The model hub forbids reading {repo_id}"
        + (" with the hub token in use" if with_token else " without a token")
        + ". Ask its owner for access, or choose another model."
    )
    return ModelGated(message, findings=(Finding("/model/hub", "hub_forbidden", message),))


def _repo_missing(repo_id: str, *, with_token: bool) -> ModelNotFound:
    # Said as it is: to whoever may not see a repository, the hub answers as if there were none.
    reason = (
        "or it is private and the hub token in use may not see it"
        if with_token
        else "or it is private and your project has no token for it"
    )
    message = (
        f"There is no model {repo_id} on the hub, {reason}. Check the spelling: "
        "organisation, slash, name."
    )
    return ModelNotFound(message, findings=(Finding("/model/hub", "repo_not_found", message),))


def _revision_missing(repo_id: str, revision: str) -> ModelNotFound:
    message = (
        f"{repo_id} has no revision {revision}. Give a branch, a tag or a commit hash that its "
        "hub page lists."
    )
    return ModelNotFound(
        message, findings=(Finding("/model/revision", "revision_not_found", message),)
    )


def _file_missing(repo_id: str, revision: str, path: str) -> ModelNotFound:
    message = f"{repo_id} has no file {path} at revision {revision}. Choose another revision."
    return ModelNotFound(message, findings=(Finding("/model/hub", "file_not_found", message),))
