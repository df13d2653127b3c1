"""From the model source of a request to facts and pinned files, without reading weights.

Everything that config.json, the tokenizer's files and the safetensors headers can tell is told
here, at POST: a model that cannot be worked on never reaches a worker.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from app.domain.errors import (
    Finding,
    QuotaExceeded,
    Unavailable,
    UriNotAllowed,
    ValidationFailed,
)
from app.domain.models import FileFact, ModelFacts, TensorFact
from app.domain.sources import (
    DemoSource,
    HubSource,
    ModelSource,
    PathSource,
    PinnedFile,
    PinnedModel,
)
from app.integrations.hub import Deadline, HubClient
from app.integrations.hub.names import check_hub_source
from app.security import model_files
from app.security.model_config import clean_config, clean_file, parse_config, quantized
from app.security.native_tensors import verify_native_tensors
from app.security.safetensors_check import (
    SafetensorsHeader,
    SafetensorsIndex,
    read_header,
    read_index,
    unsafe,
)
from app.security.strict_json import printable
from app.services.model_readers import (
    ModelReader,
    ReadBlob,
    VersionReader,
    open_demo,
    open_folder,
    open_hub,
)
from app.services.model_tokenizer import TOKENIZER_FILES, EncoderCache, read_encoder
from app.services.recent import Recent

_PARALLEL_READS = 8  # a 70 B model has 30 shards; the hub answers a range in about 0.1 s

# Once read, they spare 2 ms of CPU for each POST. A large model is read again, so that the memory
# has a bound; there may be as many as there are encoders, which are kept with them.
KEPT_MODELS = 4
KEPT_TENSORS = 5000

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class FilesInspection:
    """What the files of a model say, wherever they lie."""

    facts: ModelFacts
    pinned: list[PinnedFile]
    warnings: tuple[str, ...]
    content_key: str | None = None


def _is_small(found: FilesInspection) -> bool:
    return len(found.facts.tensors) <= KEPT_TENSORS


@dataclass(frozen=True, slots=True)
class IntakeSettings:
    """What the operator allows, and where to keep what was read.

    `hub_orgs` empty allows every organisation; `max_total_bytes` None every size. One object
    serves a process: it keeps the tokenizers used last, and what was found in the files of models
    whose bytes cannot change.
    """

    cache_dir: Path
    models_dir: Path | None = None
    hub: HubClient | None = None
    hub_orgs: tuple[str, ...] = ()
    budget_s: float = 5.0
    max_total_bytes: int | None = None
    encoders: EncoderCache = field(default_factory=EncoderCache)
    inspections: Recent[FilesInspection] = field(
        default_factory=lambda: Recent(KEPT_MODELS, keeps=_is_small)
    )


@dataclass(frozen=True, slots=True)
class InspectedModel:
    """A model as far as it is known at POST.

    `facts.config` is the cleaned config. `content_key` names the bytes of all files for all time;
    it is None where they may change.
    """

    facts: ModelFacts
    pinned: PinnedModel
    content_key: str | None
    warnings: tuple[str, ...]


def inspect_source(
    source: ModelSource,
    *,
    settings: IntakeSettings,
    stored_files: Sequence[FileFact] = (),
    read_blob: ReadBlob | None = None,
) -> InspectedModel:
    """Resolve, read and check a model source.

    For a `VersionSource` the caller gives the version's files, with digests, and a function that
    reads a range of a blob. Raises `ValidationFailed`, `UriNotAllowed`, `ModelNotFound`,
    `ModelGated`, `UnsafeModelFormat`, `MethodModelIncompatible`, `QuotaExceeded` or `Unavailable`.
    """
    if isinstance(source, HubSource):
        return _inspect_hub(source, settings)
    if isinstance(source, PathSource):
        reader = open_folder(settings.models_dir, source.name)
        inspection = inspect_files(reader, settings)
        pinned = PinnedModel(type="path", name=source.name, files=inspection.pinned)
        return _inspected(inspection, pinned)
    if isinstance(source, DemoSource):
        inspection = inspect_files(open_demo(source.name), settings)
        pinned = PinnedModel(type="demo", name=source.name, files=inspection.pinned)
        return _inspected(inspection, pinned)
    if read_blob is None:
        raise ValueError("a model version can only be read with read_blob")
    inspection = inspect_files(VersionReader(stored_files, read_blob), settings)
    pinned = PinnedModel(type="version", version_id=source.version_id, files=inspection.pinned)
    return _inspected(inspection, pinned)


def _inspect_hub(source: HubSource, settings: IntakeSettings) -> InspectedModel:
    findings = check_hub_source(source)
    if findings:
        raise ValidationFailed(findings[0].message, findings=findings)
    organisation = source.repo_id.rpartition("/")[0]
    if settings.hub_orgs and organisation not in settings.hub_orgs:
        raise _hub_not_allowed(
            f"The operator allows hub models of {', '.join(settings.hub_orgs)} only."
        )
    if settings.hub is None:
        raise _hub_not_allowed("Models of the hub are switched off by the operator.")
    reader, listing = open_hub(
        settings.hub,
        source.repo_id,
        source.revision,
        cache_dir=settings.cache_dir,
        deadline=Deadline(settings.budget_s),
    )
    inspection = inspect_files(reader, settings, parallel=_PARALLEL_READS)
    pinned = PinnedModel(
        type="hub",
        repo_id=source.repo_id,
        commit=listing.commit,
        revision=source.revision,
        restricted=listing.restricted,
        files=inspection.pinned,
    )
    return _inspected(inspection, pinned)


def _hub_not_allowed(message: str) -> UriNotAllowed:
    finding = Finding("/model/hub", "hub_not_allowed", message)
    return UriNotAllowed(message, findings=(finding,))


def _inspected(inspection: FilesInspection, pinned: PinnedModel) -> InspectedModel:
    return InspectedModel(inspection.facts, pinned, inspection.content_key, inspection.warnings)


def inspect_files(
    reader: ModelReader, settings: IntakeSettings, *, parallel: int = 1
) -> FilesInspection:
    """Read and check config, tokenizer and safetensors headers of a model, if not done before."""
    return settings.inspections.get(
        reader.content_key, lambda: _read_files(reader, settings, parallel)
    )


def _read_files(reader: ModelReader, settings: IntakeSettings, parallel: int) -> FilesInspection:
    names = frozenset(reader.files)
    if "quantize_config.json" in names:
        raise quantized("The model has a quantize_config.json: its weights are quantised.")
    choice = model_files.choose_weights(names)
    small = _read_small_files(reader, choice.index, parallel)
    cleaned = clean_config(parse_config(small[model_files.CONFIG]))
    for name in small.keys() & set(model_files.CONFIGS):
        clean_file(name, small[name])  # refuses here what the worker would refuse
    index = None
    if choice.index is not None:
        index = read_index(small[choice.index], name=choice.index, present=names)
    shards = index.files if index else (model_files.SINGLE_WEIGHTS,)
    wanted = _wanted(names, shards, choice.index)
    _check_total(reader, wanted, settings.max_total_bytes)
    headers = _read_headers(reader, shards, parallel)
    tensors = _join(headers, index)
    if cleaned.named_code:
        verify_native_tensors(cleaned.config, tensors)
    tokenizer, warnings = read_encoder(small, cleaned.config, tensors, cache=settings.encoders)
    pinned = [_pin(reader, name, small.get(name), headers.get(name)) for name in wanted]
    if choice.stale_index:
        warnings = (*warnings, "The index file was ignored: model.safetensors is complete.")
    files = tuple(FileFact(file["path"], file["size"], file["sha256"]) for file in pinned)
    facts = ModelFacts(
        cleaned.config,
        tensors,
        files,
        encode=tokenizer.encode if tokenizer else None,
        gguf_obstacle=tokenizer.gguf_obstacle if tokenizer else None,
    )
    return FilesInspection(facts, pinned, (*cleaned.warnings, *warnings), reader.content_key)


def _wanted(names: Iterable[str], shards: Sequence[str], index: str | None) -> list[str]:
    """Name the files that the job will use: all that are allowed, but no other weights."""
    weights = {*shards, *([index] if index else [])}
    return sorted(
        name
        for name in names
        if model_files.is_allowed_file(name)
        and (name in weights or not model_files.is_weight_file(name))
    )


def _check_total(reader: ModelReader, wanted: Iterable[str], limit: int | None) -> None:
    total = sum(reader.files[name].size_bytes for name in wanted)
    if limit is not None and total > limit:
        raise QuotaExceeded(
            f"The model has {total} bytes; {limit} is this service's limit for one model. "
            "Choose a smaller model, or ask the operator to raise DEBIAS_MAX_MODEL_BYTES."
        )


def _read_small_files(reader: ModelReader, index: str | None, parallel: int) -> dict[str, bytes]:
    wanted = [*model_files.CONFIGS, *TOKENIZER_FILES, *([index] if index else [])]
    present = [name for name in dict.fromkeys(wanted) if name in reader.files]

    def read(name: str) -> bytes:
        size = reader.files[name].size_bytes
        model_files.check_metadata_size(name, size)
        data = reader.read(name, 0, size)
        _check_complete(name, data, reader.files[name])
        return data

    return _each(read, present, parallel)


def _check_complete(name: str, data: bytes, fact: FileFact) -> None:
    digest = hashlib.sha256(data).hexdigest()
    if len(data) != fact.size_bytes or (fact.sha256 and fact.sha256 != digest):
        raise Unavailable(
            f"{name} arrived damaged or in part. Send the request again.", retry_after_s=5
        )


def _read_headers(
    reader: ModelReader, shards: Sequence[str], parallel: int
) -> dict[str, SafetensorsHeader]:
    def read(name: str) -> SafetensorsHeader:
        size = reader.files[name].size_bytes
        return read_header(lambda start, end: reader.read(name, start, end), size, name=name)

    return _each(read, list(shards), parallel)


def _each(
    function: Callable[[Item], Result], items: Sequence[Item], parallel: int
) -> dict[Item, Result]:
    if parallel == 1 or len(items) < 2:
        return {item: function(item) for item in items}
    with ThreadPoolExecutor(max_workers=min(parallel, len(items))) as pool:
        return dict(zip(items, pool.map(function, items), strict=True))


def _join(
    headers: Mapping[str, SafetensorsHeader], index: SafetensorsIndex | None
) -> dict[str, TensorFact]:
    """Join the shards' tensors; the index must say exactly what the shards hold."""
    tensors: dict[str, TensorFact] = {}
    for header in headers.values():
        for name, tensor in header.tensors.items():
            if name in tensors:
                raise _index_stale(f"tensor {printable(name)} is in two shards")
            tensors[name] = tensor
    if index is None:
        return tensors
    found = {name: tensor.file for name, tensor in tensors.items()}
    wrong = sorted(
        name
        for name in found.keys() | index.weight_map.keys()
        if found.get(name) != index.weight_map.get(name)
    )
    if wrong:
        raise _index_stale(
            f"{len(wrong)} tensor(s) are not where it says, the first being {printable(wrong[0])}"
        )
    return tensors


def _index_stale(reason: str) -> Exception:
    return unsafe(
        "index_stale",
        f"The index does not fit its shards: {reason}. It belongs to another version of the "
        "model: save the model again.",
    )


def _pin(
    reader: ModelReader, name: str, content: bytes | None, header: SafetensorsHeader | None
) -> PinnedFile:
    fact = reader.files[name]
    digest = fact.sha256 or (hashlib.sha256(content).hexdigest() if content is not None else None)
    pinned = PinnedFile(path=name, size=fact.size_bytes, sha256=digest)
    if header is not None:
        pinned["header_sha256"] = header.sha256
    if name in reader.mtimes_ns:
        pinned["mtime_ns"] = reader.mtimes_ns[name]
    return pinned


__all__ = ["FilesInspection", "InspectedModel", "IntakeSettings", "inspect_files", "inspect_source"]
