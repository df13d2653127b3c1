"""Turn the hub's refusals into errors that say what to do.

The hub answers 401 for a repository that does not exist as well as for one that needs a token;
its `X-Error-Code` header tells the cases apart where it is sent.
"""

import httpx

from app.domain.errors import DebiasError, Finding, ModelGated, ModelNotFound, Unavailable

_MAX_RETRY_AFTER_S = 3600
_RETRY_AFTER_S = 10


def unreachable() -> Unavailable:
    """Make the error for a hub that cannot be reached."""
    return Unavailable(
        "The model hub cannot be reached. Send the request again later.",
        retry_after_s=_RETRY_AFTER_S,
    )


def refusal(
    response: httpx.Response, *, repo_id: str, revision: str, path: str | None, with_token: bool
) -> DebiasError:
    """Make the error for an answer other than 2xx.

    `path` is the file that was asked for, None for the repository itself; `with_token` says
    whether the refusing host was sent a token.
    """
    status, code = response.status_code, response.headers.get("x-error-code", "")
    if status == 429 or status >= 500:
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
    return _repo_missing(repo_id, with_token=with_token)


def _busy(response: httpx.Response) -> Unavailable:
    value = response.headers.get("retry-after", "")
    wait = int(value) if value.isascii() and value.isdigit() else _RETRY_AFTER_S
    wait = min(max(wait, 1), _MAX_RETRY_AFTER_S)
    reason = "limits our requests" if response.status_code == 429 else "has a fault at present"
    return Unavailable(
        f"The model hub {reason}. Send the request again in {wait} s.", retry_after_s=wait
    )


def _gated(repo_id: str, *, with_token: bool) -> ModelGated:
    if with_token:
        message = (
            f"{repo_id} is gated, and the account of the service's hub token was not given access."
            " Accept the model's terms on its hub page with that account, then send the job again."
        )
    else:
        message = (
            f"{repo_id} is gated: its owner asks everyone to accept terms first. Accept them on "
            "its hub page, and have the operator set a hub token of that account."
        )
    return ModelGated(message, findings=(Finding("/model/hub", "model_gated", message),))


def _bad_token() -> ModelGated:
    message = (
        "The model hub refuses the service's hub token: it is wrong, expired or revoked. The "
        "operator should set a new one, or none for public models."
    )
    return ModelGated(message, findings=(Finding("/model/hub", "hub_token_refused", message),))


def _forbidden(repo_id: str, *, with_token: bool) -> ModelGated:
    message = (
        f"The model hub forbids reading {repo_id}"
        + (" with the service's hub token" if with_token else " without a token")
        + ". Ask its owner for access, or choose another model."
    )
    return ModelGated(message, findings=(Finding("/model/hub", "hub_forbidden", message),))


def _repo_missing(repo_id: str, *, with_token: bool) -> ModelNotFound:
    reason = (
        "or it is private and the service's token may not see it"
        if with_token
        else "or it is private and the service has no token for it"
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
