"""A project's hub token: used for that project, sent to the hub, and found nowhere else."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from app.db.session import Database
from app.db.tables import Job
from app.db.uow import unit_of_work
from app.domain.errors import DebiasError, ModelGated, SecretUnreadable
from app.domain.sources import HubSource, PinnedModel
from app.integrations.hub import HubClient
from app.integrations.hub.transport import open_http
from app.security.scopes import ALL_SCOPES, Principal
from app.security.secrets import SecretBox
from app.services.model_intake import InspectedModel, IntakeSettings, inspect_source
from app.services.secrets import delete_secret, hub_of_project, set_secret
from tests.execution import Workshop, queue_job, resolved_spec
from tests.fixtures.database import make_project
from tests.hub_stand_in import GOOD_TOKEN, OTHER_TOKEN, HubStandIn, Seen
from tests.model_files import llama_folder
from workers.fetch import FetchSources, fetch_model
from workers.testkit.fake_method import Engine

REPO = "org/model"
BOX = SecretBox(["k" * 40])

# What is particular to a database is tested with the secrets themselves.
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


@pytest.fixture
def hub() -> Iterator[HubStandIn]:
    with HubStandIn(with_storage=True) as stand_in:
        yield stand_in


class Service:
    """One service with one hub client and one cache, for several projects."""

    def __init__(self, hub: HubStandIn, database: Database, folder: Path) -> None:
        self.database, self.folder = database, folder
        self.operator_token: str | None = None
        self.client = HubClient(hub.endpoint, http=open_http())
        self.box: SecretBox | None = BOX

    def project(self, token: str | None = None) -> UUID:
        project_id = make_project(self.database)
        if token is not None:
            with self._unit(project_id) as u:
                set_secret(u, BOX, "hub_token", token)
        return project_id

    def forget(self, project_id: UUID) -> None:
        with self._unit(project_id) as u:
            delete_secret(u, "hub_token")

    def hub_of(self, project_id: UUID) -> HubClient:
        with self.database.read() as session:
            return hub_of_project(self.client, session, self.box, project_id)

    def inspect(self, project_id: UUID, revision: str = "main") -> InspectedModel:
        """What the API does at POST."""
        intake = IntakeSettings(self.folder / "cache", hub=self.hub_of(project_id), budget_s=20.0)
        return inspect_source(HubSource(REPO, revision), settings=intake)

    def sources(self, project_id: UUID) -> FetchSources:
        return FetchSources(
            self.folder / "cache", hub=self.client, hub_of=lambda _: self.hub_of(project_id)
        )

    def fetch(self, project_id: UUID, pinned: PinnedModel, name: str = "target") -> Path:
        """What a worker does with what was pinned."""
        target = self.folder / name
        fetch_model(
            pinned,
            target,
            sources=self.sources(project_id),
            should_stop=lambda: False,
            on_progress=lambda _done, _total: None,
        )
        return target

    def _unit(self, project_id: UUID) -> Any:
        return unit_of_work(self.database, Principal(project_id, None, ALL_SCOPES), write=True)


@pytest.fixture
def service(hub: HubStandIn, database: Database, tmp_path: Path) -> Iterator[Service]:
    one = Service(hub, database, tmp_path)
    with one.client:
        yield one


def tokens(seen: list[Seen]) -> set[str | None]:
    return {request.headers.get("Authorization") for request in seen}


def hub_requests(hub: HubStandIn) -> list[Seen]:
    return [request for request in hub.seen if request.host == "hub"]


class TestWhoseToken:
    def test_gated_model_opens_for_the_project_with_the_token_only(
        self, hub: HubStandIn, service: Service
    ) -> None:
        hub.add(REPO, llama_folder(), gated="manual")
        owner, other = service.project(GOOD_TOKEN), service.project()

        pinned = service.inspect(owner).pinned
        with pytest.raises(ModelGated):
            service.inspect(other)

        assert sorted(path.name for path in service.fetch(owner, pinned).iterdir()) == sorted(
            llama_folder()
        )

    @pytest.mark.parametrize("flags", [True, False])
    @pytest.mark.parametrize("access", [{"gated": "auto"}, {"private": True}])
    def test_what_one_project_read_is_not_kept_for_others(
        self, hub: HubStandIn, service: Service, access: dict[str, Any], flags: bool
    ) -> None:
        """Neither where the hub calls a model restricted, nor where a mirror leaves that out."""
        hub.faults.without_access_flags = not flags
        commit = hub.add(REPO, llama_folder(), **access)
        owner, other = service.project(GOOD_TOKEN), service.project()
        pinned = service.inspect(owner, commit).pinned
        service.fetch(owner, pinned)

        with pytest.raises(DebiasError) as at_post:
            service.inspect(other, commit)
        with pytest.raises(Exception, match=r"model_(gated|not_found)"):
            service.fetch(other, pinned, "stolen")

        assert at_post.value.code in ("model_gated", "model_not_found")
        assert not list((service.folder / "stolen").glob("*.safetensors"))

    def test_deleted_token_is_used_no_more(self, hub: HubStandIn, service: Service) -> None:
        hub.faults.without_access_flags = True
        commit = hub.add(REPO, llama_folder(), gated="manual")
        project = service.project(GOOD_TOKEN)
        pinned = service.inspect(project, commit).pinned
        service.fetch(project, pinned)
        service.forget(project)

        with pytest.raises(ModelGated):
            service.inspect(project, commit)

    def test_without_one_of_its_own_a_project_uses_the_services_token(
        self, hub: HubStandIn, service: Service
    ) -> None:
        hub.add(REPO, llama_folder(), gated="manual")
        with HubClient(hub.endpoint, token=GOOD_TOKEN, http=open_http()) as client:
            service.client = client
            plain, own = service.project(), service.project(OTHER_TOKEN)
            service.inspect(plain)
            assert tokens(hub_requests(hub)) == {f"Bearer {GOOD_TOKEN}"}
            hub.seen.clear()
            with pytest.raises(ModelGated):
                service.inspect(own)

        assert tokens(hub_requests(hub)) == {f"Bearer {OTHER_TOKEN}"}

    def test_hubs_refusal_of_the_token_is_named(self, hub: HubStandIn, service: Service) -> None:
        hub.add(REPO, llama_folder())
        project = service.project("hf_revoked_long_ago")

        with pytest.raises(ModelGated) as refused:
            service.inspect(project)

        assert refused.value.findings[0].code == "hub_token_refused"
        assert "hf_revoked_long_ago" not in repr(vars(refused.value))


class TestWhereItGoes:
    def test_to_the_hub_but_not_to_the_storage_behind_it(
        self, hub: HubStandIn, service: Service
    ) -> None:
        hub.add(REPO, llama_folder(), gated="manual")
        project = service.project(GOOD_TOKEN)

        service.fetch(project, service.inspect(project).pinned)

        assert tokens(hub_requests(hub)) == {f"Bearer {GOOD_TOKEN}"}
        behind = [seen for seen in hub.seen if seen.host == "storage"]
        assert behind
        assert tokens(behind) == {None}
        assert not any(GOOD_TOKEN in seen.path for seen in hub.seen)

    def test_cookies_of_one_token_do_not_go_along_with_another(
        self, hub: HubStandIn, service: Service
    ) -> None:
        hub.add(REPO, llama_folder())
        hub.faults.cookie = "session=of-the-first"
        for token in (GOOD_TOKEN, OTHER_TOKEN, None):
            service.inspect(service.project(token))

        assert not any("Cookie" in seen.headers for seen in hub.seen)

    def test_engine_scratch_and_rows_never_hold_it(
        self,
        hub: HubStandIn,
        service: Service,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A whole attempt: looked for while the engine runs, and in the database afterwards."""
        hub.add(REPO, llama_folder(), gated="manual")
        project = service.project(GOOD_TOKEN)
        workshop = Workshop(service.database, service.folder / "workshop")
        spec = resolved_spec(model=dict(service.inspect(project).pinned))
        job_id = queue_job(service.database, project, spec)
        found: list[str] = []
        debias = Engine.debias

        def looking(*args: Any, **kwargs: Any) -> Any:
            files = [path for path in service.folder.rglob("*") if path.is_file()]
            found.extend(
                str(path)
                for path in files
                if path.suffix not in (".db", ".db-wal")
                and GOOD_TOKEN.encode() in path.read_bytes()
            )
            found.extend(name for name, value in os.environ.items() if GOOD_TOKEN in value)
            found.append(f"looked at {len(files) > 5}")
            return debias(*args, **kwargs)

        monkeypatch.setattr(Engine, "debias", looking)
        workshop.run_next(fetch=service.sources(project), secrets=BOX)

        with service.database.read() as session:
            job = session.get_one(Job, job_id)
            assert job.status == "succeeded"
            everything = [
                repr(session.execute(sa.select(table)).all())
                for table in Job.metadata.sorted_tables
            ]
        assert found == ["looked at True"]
        assert not any(GOOD_TOKEN in rows for rows in everything)
        assert GOOD_TOKEN not in caplog.text


class TestUnreadable:
    def test_token_that_no_key_opens_is_a_typed_error(
        self, hub: HubStandIn, service: Service
    ) -> None:
        hub.add(REPO, llama_folder())
        project = service.project(GOOD_TOKEN)
        service.box = SecretBox(["another key, of forty characters or more"])

        with pytest.raises(SecretUnreadable, match="PUT /v1/secrets/hub_token"):
            service.inspect(project)

        assert hub.seen == []

    def test_job_that_meets_it_fails_with_what_to_do(
        self, hub: HubStandIn, service: Service
    ) -> None:
        hub.add(REPO, llama_folder())
        project = service.project(GOOD_TOKEN)
        pinned = dict(service.inspect(project).pinned)
        workshop = Workshop(service.database, service.folder / "workshop")
        job_id = queue_job(service.database, project, resolved_spec(model=pinned))
        other = SecretBox(["another key, of forty characters or more"])

        workshop.run_next(fetch=service.sources(project), secrets=other)

        with service.database.read() as session:
            job = session.get_one(Job, job_id)
            assert job.status == "failed"
            assert job.error is not None
            assert job.error["code"] == "secret_unreadable"
            assert "PUT /v1/secrets/hub_token" in job.error["message"]

    def test_worker_without_a_key_says_who_can_help(
        self, hub: HubStandIn, service: Service
    ) -> None:
        hub.add(REPO, llama_folder())
        project = service.project(GOOD_TOKEN)
        service.box = None

        with pytest.raises(DebiasError, match="DEBIAS_SECRET_KEY to the API and to the workers"):
            service.inspect(project)
