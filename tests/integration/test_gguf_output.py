"""The GGUF file as a part of a job's output, and what POST and worker say of a tokenizer."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import JobFailure
from app.integrations.tokenizer import TokenizerFiles, load_encoder
from app.integrations.tokenizer_process import load_isolated_encoder
from tests.fairness_pruning_jobs import QUIET, job_context
from tests.gguf_models import FAMILIES, NEURONS, save_gguf_model
from workers.methods.fairness_pruning.engine import Engine
from workers.models.gguf.export import export_gguf
from workers.models.gguf.output import FILE, add_gguf
from workers.models.gguf.vocabulary import read_vocabulary
from workers.runtime.context import Stopped
from workers.runtime.local import LocalContext, run_locally
from workers.runtime.results import read_manifest, write_manifest

BOTH = ("safetensors", "gguf")
PAIR = {"prompt_1": "The boy was very happy", "prompt_2": "The girl was very happy"}


def context_of(tmp_path: Path, shared_data: Path, **config: Any) -> LocalContext:
    model_dir = tmp_path / "model"
    save_gguf_model(model_dir, "llama", shared_data)
    return job_context(model_dir, tmp_path, {"pairs": [PAIR], **QUIET, **config})


def test_a_local_run_writes_the_file_where_it_is_asked_for(
    tmp_path: Path, shared_data: Path
) -> None:
    context = context_of(tmp_path, shared_data, neurons_per_layer=2)

    run_locally(Engine(), context, formats=BOTH)

    write_manifest(context.out_dir)
    listed = {file.name: file for file, _ in read_manifest(context.out_dir)}
    assert (listed[FILE].type, listed[FILE].media_type) == ("model", "application/octet-stream")
    assert f"{NEURONS - 2} neurons" in dict(context.warnings)["gguf_not_quantisable"]
    assert context.steps[-1][3] == "writing the GGUF file"


def test_a_second_run_gives_the_same_file(tmp_path: Path, shared_data: Path) -> None:
    context = context_of(tmp_path, shared_data, neurons_per_layer=2)
    run_locally(Engine(), context, formats=BOTH)
    first = (context.out_dir / FILE).read_bytes()

    run_locally(Engine(), context, formats=BOTH)

    assert (context.out_dir / FILE).read_bytes() == first


def test_widths_that_blocks_divide_give_no_warning(tmp_path: Path, shared_data: Path) -> None:
    context = context_of(tmp_path, shared_data, neurons_per_layer=NEURONS - 32)

    run_locally(Engine(), context, formats=BOTH)

    assert (context.out_dir / FILE).is_file()
    assert "gguf_not_quantisable" not in dict(context.warnings)


def test_a_run_that_makes_no_model_writes_no_file(tmp_path: Path, shared_data: Path) -> None:
    context = context_of(tmp_path, shared_data, neurons_per_layer=2)
    context.out_dir.mkdir()

    add_gguf(context)

    assert list(context.out_dir.iterdir()) == []
    assert "gguf_not_written" in dict(context.warnings)


def test_without_the_format_there_is_no_file(tmp_path: Path, shared_data: Path) -> None:
    context = context_of(tmp_path, shared_data, neurons_per_layer=2)

    run_locally(Engine(), context)

    assert not (context.out_dir / FILE).parent.exists()


def test_a_stop_during_the_export_ends_the_run_without_a_file(
    tmp_path: Path, shared_data: Path
) -> None:
    context = context_of(tmp_path, shared_data, neurons_per_layer=2)
    run_locally(Engine(), context)
    # The finished phases are not run again, so that the polls of the second run are few and known.
    context.polls = 0
    run_locally(Engine(), context)
    context.polls, context.stop_after_polls = 0, context.polls + 3

    with pytest.raises(Stopped):
        run_locally(Engine(), context, formats=BOTH)

    assert list((context.out_dir / FILE).parent.iterdir()) == []


def files_of(folder: Path) -> TokenizerFiles:
    return TokenizerFiles(
        (folder / "tokenizer.json").read_text(encoding="utf-8"),
        json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")),
        {},
        {},
    )


@pytest.mark.parametrize("model_type", FAMILIES)
def test_post_accepts_the_tokenizers_that_the_worker_exports(
    tmp_path: Path, shared_data: Path, model_type: str
) -> None:
    folder = tmp_path / "model"
    save_gguf_model(folder, model_type, shared_data)

    assert load_encoder(files_of(folder), {"model_type": model_type}).gguf_obstacle() is None
    assert read_vocabulary(folder).kind.model in ("gpt2", "llama")


def test_post_and_worker_refuse_the_same_tokenizer(tmp_path: Path, shared_data: Path) -> None:
    folder = tmp_path / "model"
    save_gguf_model(folder, "stablelm", shared_data)
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    content["pre_tokenizer"]["add_prefix_space"] = True
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")

    isolated = load_isolated_encoder(files_of(folder), {"model_type": "stablelm"})

    assert isolated.gguf_obstacle() == "it puts a space before a text"
    with pytest.raises(JobFailure, match="it puts a space before a text"):
        export_gguf(
            folder,
            tmp_path / "a.gguf",
            name="m",
            should_stop=lambda: False,
            on_progress=lambda done, total: None,
        )
