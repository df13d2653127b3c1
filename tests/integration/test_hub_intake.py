"""Inspecting hub models against the stand-in: what is read, what is refused, and how."""

import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.domain.errors import (
    DebiasError,
    MethodModelIncompatible,
    ModelGated,
    ModelNotFound,
    QuotaExceeded,
    Unavailable,
    UnsafeModelFormat,
    UriNotAllowed,
    ValidationFailed,
)
from app.domain.sources import HubSource
from app.integrations.hub import Deadline, HubClient
from app.services.model_intake import InspectedModel, IntakeSettings, inspect_source
from tests.hub_stand_in import GOOD_TOKEN, OTHER_TOKEN, HubStandIn
from tests.model_files import CONFIG, llama_folder, llama_shapes, safetensors, sharded_llama_folder

LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"


@pytest.fixture
def hub() -> Iterator[HubStandIn]:
    with HubStandIn() as stand_in:
        yield stand_in


class Intake:
    """Inspects models of one stand-in, as the service would."""

    def __init__(self, hub: HubStandIn, cache_dir: Path) -> None:
        self._hub = hub
        self._cache_dir = cache_dir

    def __call__(
        self,
        repo_id: str = "org/model",
        revision: str = "main",
        *,
        token: str | None = None,
        budget_s: float = 20.0,
        orgs: tuple[str, ...] = (),
        max_total_bytes: int | None = None,
    ) -> InspectedModel:
        http = httpx.Client(trust_env=False)
        with HubClient(self._hub.endpoint, token=token, http=http) as client:
            settings = IntakeSettings(
                self._cache_dir,
                hub=client,
                budget_s=budget_s,
                hub_orgs=orgs,
                max_total_bytes=max_total_bytes,
            )
            return inspect_source(HubSource(repo_id, revision), settings=settings)


@pytest.fixture
def intake(hub: HubStandIn, tmp_path: Path) -> Intake:
    return Intake(hub, tmp_path / "cache")


def code_of(error: pytest.ExceptionInfo[DebiasError]) -> str:
    assert len(error.value.findings) == 1
    return error.value.findings[0].code


def test_branch_is_pinned_to_its_commit(hub: HubStandIn, intake: Intake) -> None:
    commit = hub.add("org/model", llama_folder())

    model = intake()

    assert {key: model.pinned[key] for key in ("type", "repo_id", "commit", "revision")} == {
        "type": "hub",
        "repo_id": "org/model",
        "commit": commit,
        "revision": "main",
    }
    assert model.pinned["restricted"] is False


def test_facts_come_from_config_headers_and_tokenizer(hub: HubStandIn, intake: Intake) -> None:
    hub.add("org/model", llama_folder())

    facts = intake().facts

    assert facts.config == CONFIG
    assert {name: list(fact.shape) for name, fact in facts.tensors.items()} == llama_shapes()
    assert facts.encode is not None
    assert facts.encode("word2 word3") == [1, 2, 3]


def test_only_allowed_files_are_pinned_and_read(hub: HubStandIn, intake: Intake) -> None:
    extra = {
        "pytorch_model.bin": b"pickle",
        "modeling_custom.py": b"import os",
        "consolidated.safetensors": b"other weights",
        "onnx/model.onnx": b"",
    }
    hub.add("org/model", {**llama_folder(), **extra})

    model = intake()

    assert {file["path"] for file in model.pinned["files"]} == set(llama_folder())
    assert not [seen for seen in hub.seen if any(name in seen.path for name in extra)]


def test_weights_are_not_downloaded(hub: HubStandIn, intake: Intake) -> None:
    big = {**llama_shapes(), "model.extra.weight": [1024, 1024]}
    hub.add("org/model", llama_folder(model__safetensors=safetensors(big)))

    intake()

    (weights,) = [seen for seen in hub.seen if seen.path.endswith("model.safetensors")]
    assert weights.headers["Range"] == f"bytes=0-{256 * 1024 - 1}"


def test_server_that_ignores_ranges_is_understood(hub: HubStandIn, intake: Intake) -> None:
    hub.add("org/model", llama_folder())
    hub.faults.ignore_ranges = True

    assert intake().facts.parameter_count > 0


def test_shards_are_joined(hub: HubStandIn, intake: Intake) -> None:
    hub.add("org/model", sharded_llama_folder(shards=3))

    model = intake()

    assert model.facts.tensors.keys() == llama_shapes().keys()
    assert sum("header_sha256" in file for file in model.pinned["files"]) == 3


def test_commit_that_was_seen_needs_no_hub(hub: HubStandIn, intake: Intake) -> None:
    commit = hub.add("org/model", llama_folder())
    first = intake()
    hub.seen.clear()

    again = intake(revision=commit)

    assert again.pinned["files"] == first.pinned["files"]
    assert hub.seen == []


def test_branch_that_moved_is_seen(hub: HubStandIn, intake: Intake) -> None:
    hub.add("org/model", llama_folder())
    first = intake()
    hub.add("org/model", llama_folder(README__md=b"# new"))

    assert intake().pinned["commit"] != first.pinned["commit"]


def test_gated_model_is_never_cached(hub: HubStandIn, intake: Intake, tmp_path: Path) -> None:
    commit = hub.add("org/model", llama_folder(), gated="manual")
    model = intake(token=GOOD_TOKEN)

    assert model.pinned["restricted"] is True
    assert not list((tmp_path / "cache").rglob("*.head"))
    with pytest.raises(ModelGated):
        intake(revision=commit)


def test_missing_commit_header_does_not_matter(hub: HubStandIn, intake: Intake) -> None:
    commit = hub.add("org/model", llama_folder())
    hub.faults.without_commit_header = True

    assert intake().pinned["commit"] == commit


def test_sizes_are_asked_for_where_the_listing_has_none(hub: HubStandIn, intake: Intake) -> None:
    hub.add("org/model", llama_folder())
    expected = {name: len(data) for name, data in llama_folder().items()}
    hub.faults.without_sizes = True

    assert {file["path"]: file["size"] for file in intake().pinned["files"]} == expected


def test_token_is_not_sent_to_the_storage_host(tmp_path: Path) -> None:
    with HubStandIn(with_storage=True) as hub:
        hub.add("org/model", llama_folder(), gated="auto")

        Intake(hub, tmp_path)(token=GOOD_TOKEN)

        sent = {seen.host: "Authorization" in seen.headers for seen in hub.seen}
    assert sent == {"hub": True, "storage": False}


def test_gated_model_without_a_token(hub: HubStandIn, intake: Intake) -> None:
    hub.add("org/model", llama_folder(), gated="manual")

    with pytest.raises(ModelGated, match="Accept them") as error:
        intake()

    assert code_of(error) == "model_gated"


def test_gated_model_with_a_token_that_lacks_access(hub: HubStandIn, intake: Intake) -> None:
    hub.add("org/model", llama_folder(), gated="manual")

    with pytest.raises(ModelGated, match="was not given access"):
        intake(token=OTHER_TOKEN)


def test_refused_token_is_told_from_a_gate(hub: HubStandIn, intake: Intake) -> None:
    hub.add("org/model", llama_folder())

    with pytest.raises(ModelGated, match="wrong, expired or revoked") as error:
        intake(token="hf_expired")

    assert code_of(error) == "hub_token_refused"


@pytest.mark.parametrize("token", [None, GOOD_TOKEN])
@pytest.mark.parametrize("coded", [True, False])
def test_missing_repository(
    hub: HubStandIn, intake: Intake, token: str | None, coded: bool
) -> None:
    hub.faults.without_error_codes = not coded

    with pytest.raises(ModelNotFound, match="no model org/model") as error:
        intake(token=token)

    assert code_of(error) == "repo_not_found"


def test_private_repository_looks_like_a_missing_one(hub: HubStandIn, intake: Intake) -> None:
    hub.add("org/model", llama_folder(), private=True)

    with pytest.raises(ModelNotFound, match="private"):
        intake()


def test_missing_revision(hub: HubStandIn, intake: Intake) -> None:
    hub.add("org/model", llama_folder())

    with pytest.raises(ModelNotFound, match="no revision v9") as error:
        intake(revision="v9")

    assert error.value.findings[0].pointer == "/model/revision"


def test_disabled_repository(hub: HubStandIn, intake: Intake) -> None:
    hub.faults.answers = [(403, {"X-Error-Message": "Access to this resource is disabled."})]

    with pytest.raises(ModelGated, match="forbids reading"):
        intake()


@pytest.mark.parametrize(
    ("status", "headers", "wait"),
    [(429, {"Retry-After": "42"}, 42), (503, {}, 10), (502, {"Retry-After": "soon"}, 10)],
)
def test_busy_hub_says_when_to_come_back(
    hub: HubStandIn, intake: Intake, status: int, headers: dict[str, str], wait: int
) -> None:
    hub.faults.answers = [(status, headers)]

    with pytest.raises(Unavailable) as error:
        intake()

    assert error.value.retry_after_s == wait


def test_silent_hub_is_given_up_within_the_budget(hub: HubStandIn, intake: Intake) -> None:
    hub.add("org/model", llama_folder())
    hub.faults.hold = threading.Event()

    with pytest.raises(Unavailable) as error:
        intake(budget_s=0.2)

    assert error.value.retry_after_s is not None


def test_absent_hub(tmp_path: Path) -> None:
    with HubStandIn() as hub:
        intake = Intake(hub, tmp_path)

    with pytest.raises(Unavailable, match="cannot be reached"):
        intake()


@pytest.mark.parametrize("listing", [b"<html>", b"[]", b"{}", b'{"sha": "main", "siblings": []}'])
def test_answer_that_is_not_a_hubs(hub: HubStandIn, intake: Intake, listing: bytes) -> None:
    hub.add("org/model", llama_folder())
    hub.faults.listing = listing

    with pytest.raises(Unavailable):
        intake()


def test_several_requests_share_one_budget() -> None:
    times = iter([0.0, 4.0, 6.0])
    deadline = Deadline(5.0, monotonic=lambda: next(times))

    assert deadline.remaining_s() == 1.0
    with pytest.raises(Unavailable):
        deadline.remaining_s()


BAD_MODELS: dict[str, tuple[dict[str, bytes], type[DebiasError], str, str]] = {
    "pickle weights only": (
        {**llama_folder(model__safetensors=None), "pytorch_model.bin": b"x"},
        UnsafeModelFormat,
        "unsafe_weights_only",
        "safe_serialization=True",
    ),
    "lfs pointer instead of weights": (
        llama_folder(model__safetensors=LFS_POINTER),
        UnsafeModelFormat,
        "lfs_pointer",
        "git lfs pull",
    ),
    "lfs pointer instead of a tokenizer": (
        llama_folder(tokenizer__json=LFS_POINTER),
        UnsafeModelFormat,
        "tokenizer_invalid",
        "Git LFS pointer",
    ),
    "index names missing shards": (
        {name: data for name, data in sharded_llama_folder(3).items() if "00002-of" not in name},
        UnsafeModelFormat,
        "index_missing_shards",
        "1 file(s)",
    ),
    "index with merge marks": (
        {
            **sharded_llama_folder(2),
            "model.safetensors.index.json": b"{\n<<<<<<< HEAD\n=======\n>>>>>>> x\n}",
        },
        UnsafeModelFormat,
        "index_merge_conflict",
        "Resolve the conflict",
    ),
    "index of another version": (
        {
            **sharded_llama_folder(2),
            "model.safetensors.index.json": sharded_llama_folder(2)[
                "model.safetensors.index.json"
            ].replace(b"model.norm", b"model.norn"),
        },
        UnsafeModelFormat,
        "index_stale",
        "2 tensor(s)",
    ),
    "no config": (
        llama_folder(config__json=None),
        UnsafeModelFormat,
        "config_missing",
        "config.json",
    ),
    "no model type": (
        llama_folder(config__json=b"{}"),
        UnsafeModelFormat,
        "model_type_missing",
        "Add the one",
    ),
    "quantised": (
        llama_folder(config__json=b'{"model_type": "llama", "quantization_config": {"bits": 4}}'),
        MethodModelIncompatible,
        "quantized_checkpoint",
        "bfloat16",
    ),
    "quantised, said beside the config only": (
        {**llama_folder(), "quantize_config.json": b"{}"},
        MethodModelIncompatible,
        "quantized_checkpoint",
        "bfloat16",
    ),
    "adapter": (
        {"adapter_config.json": b"{}", "adapter_model.safetensors": safetensors({"a": [1]})},
        MethodModelIncompatible,
        "adapter_checkpoint",
        "Merge it",
    ),
    "attention code of a stranger": (
        llama_folder(
            config__json=b'{"model_type": "llama", "_attn_implementation_internal": "x/y"}'
        ),
        UnsafeModelFormat,
        "code_selecting_key",
        "Remove it",
    ),
    "code of its own on a native type, with other tensors": (
        llama_folder(
            config__json=b'{"auto_map": {"AutoModel": "a.B"}, ' + llama_folder()["config.json"][1:],
            model__safetensors=safetensors({**llama_shapes(), "model.alibi": [2]}),
        ),
        UnsafeModelFormat,
        "custom_architecture",
        "model.alibi",
    ),
    "generation config that selects code": (
        {**llama_folder(), "generation_config.json": b'{"kernel_config": "x/y"}'},
        UnsafeModelFormat,
        "code_selecting_key",
        "generation_config.json",
    ),
    "token ids beyond the embedding": (
        llama_folder(
            tokenizer_config__json=b'{"tokenizer_class": "PreTrainedTokenizerFast",'
            b' "pad_token": "<pad>"}'
        ),
        UnsafeModelFormat,
        "vocabulary_beyond_embedding",
        "resize_token_embeddings",
    ),
    "tokenizer of another format": (
        llama_folder(tokenizer__json=b'{"model": {"type": "Dreams"}}'),
        UnsafeModelFormat,
        "tokenizer_invalid",
        "save_pretrained",
    ),
    "weights cut short": (
        llama_folder(model__safetensors=safetensors(llama_shapes())[:-1]),
        UnsafeModelFormat,
        "safetensors_truncated",
        "Upload the file again",
    ),
}


@pytest.mark.parametrize("defect", BAD_MODELS)
def test_damaged_model_is_refused_with_advice(hub: HubStandIn, intake: Intake, defect: str) -> None:
    files, kind, code, advice = BAD_MODELS[defect]
    hub.add("org/model", files)

    with pytest.raises(kind) as error:
        intake()

    assert code_of(error) == code
    assert advice in error.value.detail


def test_stale_index_beside_a_complete_file_is_ignored(hub: HubStandIn, intake: Intake) -> None:
    index = sharded_llama_folder(2)["model.safetensors.index.json"]
    hub.add("org/model", {**llama_folder(), "model.safetensors.index.json": index})

    model = intake()

    assert any("index" in warning for warning in model.warnings)
    assert "model.safetensors.index.json" not in {file["path"] for file in model.pinned["files"]}


def test_own_code_with_the_tensors_of_a_native_type_is_dropped(
    hub: HubStandIn, intake: Intake
) -> None:
    config = b'{"auto_map": {"AutoModel": "a.B"}, ' + llama_folder()["config.json"][1:]
    hub.add("org/model", llama_folder(config__json=config))

    model = intake()

    assert model.facts.config == CONFIG
    assert any("auto_map" in warning for warning in model.warnings)


def test_model_without_a_tokenizer_has_no_encoder(hub: HubStandIn, intake: Intake) -> None:
    hub.add("org/model", llama_folder(tokenizer__json=None))

    assert intake().facts.encode is None


def test_misspelt_source_reaches_no_hub(hub: HubStandIn, intake: Intake) -> None:
    with pytest.raises(ValidationFailed) as error:
        intake("https://huggingface.co/org/model/tree/main")

    assert '{"hub": "org/model", "revision": "main"}' in error.value.findings[0].message
    assert hub.seen == []


def test_organisation_outside_the_allow_list(hub: HubStandIn, intake: Intake) -> None:
    hub.add("org/model", llama_folder())

    with pytest.raises(UriNotAllowed, match="trusted") as error:
        intake(orgs=("trusted",))
    assert [finding.pointer for finding in error.value.findings] == ["/model/hub"]


def test_model_over_the_size_limit(hub: HubStandIn, intake: Intake) -> None:
    hub.add("org/model", llama_folder())

    with pytest.raises(QuotaExceeded, match="100 is"):
        intake(max_total_bytes=100)


def test_file_that_arrives_in_part_is_asked_for_again_later(
    hub: HubStandIn, intake: Intake
) -> None:
    hub.add("org/model", llama_folder(README__md=b""))
    hub.faults.cut_after = [300, 20]

    with pytest.raises(Unavailable):
        intake()
