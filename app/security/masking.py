"""Show settings without the passwords that URLs carry."""

import re

MASK = "**********"
_USER_INFO = re.compile(r"(://[^:/?#@\s]*):[^@\s]+@")
_PARAMETER = re.compile(r"(?i)([?&][a-z_]*password=)[^&\s]*")


def mask_passwords(text: str) -> str:
    """Hide the passwords of all URLs in `text`, in front of the host and in the query."""
    return _PARAMETER.sub(rf"\1{MASK}", _USER_INFO.sub(rf"\1:{MASK}@", text))
