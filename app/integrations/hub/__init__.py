"""The model hub's HTTP interface: listings, byte ranges, downloads. Nothing of it is executed."""

from app.integrations.hub.client import HubClient, RepoFile
from app.integrations.hub.deadline import Deadline
from app.integrations.hub.listing import HubFile, RepoListing, is_commit

__all__ = ["Deadline", "HubClient", "HubFile", "RepoFile", "RepoListing", "is_commit"]
