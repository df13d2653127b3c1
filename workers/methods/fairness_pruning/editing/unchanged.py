"""Whether an edit changed the model at all: a list of edited tensors does not say so.

A neuron that was zero can be set to zero again, and a factor near 1 can round to the same number
in 16 bits. Only the stored bytes tell.
"""

from collections.abc import Iterable
from pathlib import Path

from workers.models.tensor_files import CheckpointFiles, byte_blocks, open_checkpoint


def changes_a_tensor(base_dir: Path, edited_dir: Path, names: Iterable[str]) -> bool:
    """Whether any of the tensors `names` differs between two checkpoints, in shape or bytes.

    Reading stops at the first difference, so only an edit that changed nothing is read in full.

    Raises
    ------
    JobFailure
        A checkpoint is damaged.
    """
    wanted = list(names)
    if not wanted:
        return False
    base, edited = open_checkpoint(base_dir), open_checkpoint(edited_dir)
    return any(_differs(base, edited, name) for name in wanted)


def _differs(base: CheckpointFiles, edited: CheckpointFiles, name: str) -> bool:
    try:
        (shard_1, tensor_1), (shard_2, tensor_2) = base.locate(name), edited.locate(name)
    except KeyError:
        return True
    if (tensor_1.dtype, tensor_1.shape) != (tensor_2.dtype, tensor_2.shape):
        return True
    with shard_1.path.open("rb") as file_1, shard_2.path.open("rb") as file_2:
        blocks_1 = byte_blocks(file_1, tensor_1.begin, tensor_1.size_bytes)
        blocks_2 = byte_blocks(file_2, tensor_2.begin, tensor_2.size_bytes)
        return any(first != second for first, second in zip(blocks_1, blocks_2, strict=True))
