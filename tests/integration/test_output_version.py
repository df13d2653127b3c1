"""What is recorded about the model that a job made."""

import json
from pathlib import Path

from app.db.repositories.blobs import StoredBlob
from app.db.repositories.outputs import NewArtifact
from tests.execution import resolved_spec
from tests.model_files import CONFIG, llama_shapes, safetensors
from workers.attempt.publish import describe_version


def test_masks_that_old_versions_stored_do_not_count_as_parameters(tmp_path: Path) -> None:
    masks = {f"model.layers.{n}.self_attn.rotary_emb.inv_freq": [1] for n in range(2)}
    content = {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors": safetensors({**llama_shapes(), **masks}),
    }
    artifacts = []
    (tmp_path / "checkpoint").mkdir()
    for name, data in content.items():
        (tmp_path / "checkpoint" / name).write_bytes(data)
        blob = StoredBlob("0" * 64, len(data), "key")
        artifacts.append(NewArtifact(f"checkpoint/{name}", "checkpoint", "text/plain", blob))

    version = describe_version(resolved_spec(), artifacts, tmp_path)

    assert version is not None
    trained = 0
    for shape in llama_shapes().values():
        trained += shape[0] * (shape[1] if len(shape) > 1 else 1)
    assert (version.params, version.dtype) == (trained, "F32")
