"""Where the attention of each decoder family keeps its heads: names, axes and config fields.

Head h of a layer is a block of `head_dim` neighbouring values at the input of the attention's
output projection, whatever the family calls that projection. With grouped queries, several heads
share one key-value head: they form a *group*. Sizes are taken from the tensor headers, since
families differ in what config.json may leave out; every layer is looked at.

A head can be *cleared* in every family: its input columns of the output projection become zero. A
group can be *removed* only where the stock config can say that a layer has fewer of them, which is
where `head_dim` is a setting of its own (verified with transformers 5.24, each row of the table
by a test that loads a model with a group removed).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from app.domain.architectures import FLOAT_DTYPES, MlpLayout, TensorNames, find_layout
from app.domain.errors import Finding
from app.domain.models import ModelFacts, TensorFact

UNSUPPORTED = "unsupported_attention"

QUERY_HEADS_FIELD = "num_attention_heads"
KEY_VALUE_HEADS_FIELD = "num_key_value_heads"
HEAD_DIM_FIELD = "head_dim"
"""Fields of config.json that say how many heads a layer has, in every family of `removable`."""

_DERIVED = "its model class takes the width of a head from the number of heads"
_FUSED = "it stores queries, keys and values in one matrix"
# Old versions of the library saved this buffer; it does not depend on the number of heads.
_IGNORED = "rotary_emb.inv_freq"
_MAX_FINDINGS = 20


@dataclass(frozen=True, slots=True)
class AttentionLayout:
    """Names and config fields of the families in `model_types`.

    `inputs` are the modules, inside a layer, that compute queries, keys and values: three, or one
    fused one. `output` is the projection that leads back to the hidden size and `head_axis` the
    axis of its weight along which heads lie. `head_norms` normalise each head by itself.
    `obstacle` says why heads cannot be removed in this family, None where they can;
    `divides_hidden` is set where the config class demands that the number of heads divides the
    hidden size even beside an explicit `head_dim`. `default_heads` is what the config class takes
    where config.json does not give the number, which published files of that family do.
    """

    model_types: tuple[str, ...]
    inputs: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    output: str = "self_attn.o_proj"
    head_axis: Literal[0, 1] = 1
    heads_fields: tuple[str, ...] = (QUERY_HEADS_FIELD,)
    head_norms: tuple[str, ...] = ()
    divides_hidden: bool = False
    obstacle: str | None = None
    default_heads: int | None = None

    @property
    def value(self) -> str | None:
        """Name of the value projection, None where it is fused with the others."""
        return self.inputs[2] if len(self.inputs) == 3 else None


_QK_NORMS = ("self_attn.q_norm", "self_attn.k_norm")

ATTENTION_LAYOUTS: tuple[AttentionLayout, ...] = (
    AttentionLayout(("llama", "gemma2"), divides_hidden=True),
    AttentionLayout(
        ("gemma3_text", "gemma3"), head_norms=_QK_NORMS, divides_hidden=True, default_heads=8
    ),
    AttentionLayout(("qwen3",), head_norms=_QK_NORMS),
    # olmo2, and cohere with `use_qk_norm`, have norms whose size depends on the number of heads:
    # the check finds their tensors.
    AttentionLayout(
        ("mistral", "qwen2", "gemma", "smollm3", "olmo", "olmo2", "granite", "cohere", "cohere2")
    ),
    AttentionLayout(("glm", "glm4", "starcoder2", "nemotron")),
    AttentionLayout(("phi",), output="self_attn.dense"),
    AttentionLayout(("stablelm",), obstacle=_DERIVED),
    AttentionLayout(("opt",), output="self_attn.out_proj", obstacle=_DERIVED),
    AttentionLayout(
        ("gptj",),
        inputs=("attn.q_proj", "attn.k_proj", "attn.v_proj"),
        output="attn.out_proj",
        heads_fields=("n_head", QUERY_HEADS_FIELD),
        obstacle=_DERIVED,
    ),
    AttentionLayout(
        ("gpt_neo",),
        inputs=("attn.attention.q_proj", "attn.attention.k_proj", "attn.attention.v_proj"),
        output="attn.attention.out_proj",
        heads_fields=("num_heads", QUERY_HEADS_FIELD),
        obstacle=_DERIVED,
    ),
    AttentionLayout(("phi3",), inputs=("self_attn.qkv_proj",), obstacle=_FUSED),
    AttentionLayout(
        ("gpt2",),
        inputs=("attn.c_attn",),
        output="attn.c_proj",
        head_axis=0,
        heads_fields=("n_head", QUERY_HEADS_FIELD),
        obstacle=_FUSED,
    ),
    AttentionLayout(
        ("gpt_bigcode",),
        inputs=("attn.c_attn",),
        output="attn.c_proj",
        heads_fields=("n_head", QUERY_HEADS_FIELD),
        obstacle=_FUSED,
    ),
    AttentionLayout(
        ("codegen",),
        inputs=("attn.qkv_proj",),
        output="attn.out_proj",
        heads_fields=("n_head", QUERY_HEADS_FIELD),
        obstacle=_FUSED,
    ),
    AttentionLayout(
        ("gpt_neox",),
        inputs=("attention.query_key_value",),
        output="attention.dense",
        obstacle=_FUSED,
    ),
    AttentionLayout(
        ("falcon",),
        inputs=("self_attention.query_key_value",),
        output="self_attention.dense",
        obstacle=_FUSED,
    ),
    AttentionLayout(
        ("bloom",),
        inputs=("self_attention.query_key_value",),
        output="self_attention.dense",
        heads_fields=("n_head", QUERY_HEADS_FIELD),
        obstacle=_FUSED,
    ),
    AttentionLayout(
        ("mpt",),
        inputs=("attn.Wqkv",),
        output="attn.out_proj",
        heads_fields=("n_heads", QUERY_HEADS_FIELD),
        obstacle=_FUSED,
    ),
)


def find_attention(model_type: str) -> AttentionLayout | None:
    """Find the attention layout of a family; None when there is no row for it."""
    return next((row for row in ATTENTION_LAYOUTS if model_type in row.model_types), None)


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Layers, hidden size, query heads and key-value heads of a layer, and width of a head."""

    layers: int
    hidden: int
    heads: int
    key_value_heads: int
    head_dim: int

    @property
    def width(self) -> int:
        """Width of the output projection's input: all heads side by side."""
        return self.heads * self.head_dim

    @property
    def group_size(self) -> int:
        """Number of query heads that share a key-value head."""
        return self.heads // self.key_value_heads

    def group_of(self, head: int) -> int:
        """Give the number of the key-value head that a query head reads."""
        return head // self.group_size

    def heads_of(self, group: int) -> range:
        """Query heads that read one key-value head."""
        return range(group * self.group_size, (group + 1) * self.group_size)

    def groups_of(self, heads: list[int]) -> list[int]:
        """Key-value heads all of whose query heads are among `heads`, ascending."""
        named = set(heads)
        return [n for n in range(self.key_value_heads) if named.issuperset(self.heads_of(n))]


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention of one model: its family's layout, its tensors' names, and its sizes."""

    layout: AttentionLayout
    names: TensorNames
    shape: AttentionShape

    def weight(self, layer: int, module: str) -> str:
        """Tensor name of the weight of one projection."""
        return self.names.tensor(layer, f"{module}.weight")

    def bias(self, layer: int, module: str) -> str:
        """Tensor name of the bias of one projection, which a checkpoint may lack."""
        return self.names.tensor(layer, f"{module}.bias")


def read_attention(facts: ModelFacts) -> Attention:
    """Read layouts and sizes of a model's attention from config.json and the headers.

    Raises
    ------
    ValueError
        The family has no layout, or sizes contradict each other; `check_attention` says more.
    """
    layout, mlp_layout = find_attention(facts.model_type), find_layout(facts.model_type)
    if layout is None or mlp_layout is None:
        raise ValueError(f"attention heads of model_type `{facts.model_type}` are not supported")
    heads = _given_heads(facts, layout, mlp_layout)
    names = mlp_layout.tensor_names(facts.tensors)
    output = _matrix(facts.tensors, names.tensor(0, f"{layout.output}.weight"))
    width, hidden = output[layout.head_axis], output[1 - layout.head_axis]
    head_dim, rest = divmod(width, heads)
    groups = _key_value_heads(facts.tensors, layout, names, heads=heads, head_dim=head_dim)
    if rest or groups is None:
        raise ValueError(
            f"config.json says {heads} attention heads, which does not fit the attention's tensors"
        )
    layers = mlp_layout.dimensions(facts.config).layers
    return Attention(layout, names, AttentionShape(layers, hidden, heads, groups, head_dim))


def check_attention(facts: ModelFacts) -> tuple[Finding, ...]:
    """Say why heads of a model cannot be scored and cleared; empty when every layer fits.

    The MLPs of the model have been checked before.
    """
    try:
        attention = read_attention(facts)
    except ValueError as exc:
        return (_finding(f"{_sentence(exc)}."),)
    return tuple(islice(_shape_findings(facts.tensors, attention), _MAX_FINDINGS))


def removal_obstacle(facts: ModelFacts, attention: Attention) -> str | None:
    """Say why no head of this model can be removed in the format of its family, None if some can.

    Whether a number of heads can go is another question: see `kept_heads_obstacle`.
    """
    layout = attention.layout
    if layout.obstacle is not None:
        return f"{facts.model_type} has no config for fewer heads: {layout.obstacle}"
    surplus = next(_surplus_tensors(facts.tensors, attention), None)
    if surplus is not None:
        return f"the size of `{surplus}` depends on the number of heads"
    return None


def kept_heads_obstacle(attention: Attention, kept_heads: int) -> str | None:
    """Say why a layer cannot keep just `kept_heads` query heads, None if it can."""
    hidden = attention.shape.hidden
    if attention.layout.divides_hidden and hidden % kept_heads:
        return (
            f"the config class of this family demands that the number of heads divides the hidden "
            f"size, and {hidden} is no multiple of {kept_heads}"
        )
    return None


def _given_heads(facts: ModelFacts, layout: AttentionLayout, mlp_layout: MlpLayout) -> int:
    section = mlp_layout.section(facts.config)
    given = (section[name] for name in layout.heads_fields if name in section)
    value = next(given, layout.default_heads)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"config.json has no usable `{layout.heads_fields[0]}`")
    return value


def _matrix(tensors: Mapping[str, TensorFact], name: str) -> tuple[int, int]:
    tensor = tensors.get(name)
    if tensor is None or len(tensor.shape) != 2:
        raise ValueError(f"the model has no matrix `{name}`")
    return tensor.shape[0], tensor.shape[1]


def _key_value_heads(
    tensors: Mapping[str, TensorFact],
    layout: AttentionLayout,
    names: TensorNames,
    *,
    heads: int,
    head_dim: int,
) -> int | None:
    """Count key-value heads from the rows of the key projection, or of the fused one."""
    module = layout.inputs[min(1, len(layout.inputs) - 1)]
    matrix = _matrix(tensors, names.tensor(0, f"{module}.weight"))
    # Where heads are rows of the output projection, its input projection is transposed too.
    blocks, rest = divmod(matrix[1 - layout.head_axis], max(head_dim, 1))
    if layout.value is None:
        blocks, odd = divmod(blocks - heads, 2)
        rest += odd
    return None if rest or blocks < 1 or heads % blocks else blocks


def _shape_findings(tensors: Mapping[str, TensorFact], attention: Attention) -> Iterator[Finding]:
    for layer in range(attention.shape.layers):
        for module, shape in _projection_shapes(attention):
            name = attention.weight(layer, module)
            tensor = tensors.get(name)
            if tensor is None:
                yield _finding(f"`{name}` is missing, so layer {layer} has no such heads.")
            elif tensor.dtype not in FLOAT_DTYPES:
                yield _finding(f"`{name}` is stored as {tensor.dtype}; use float weights.")
            elif tensor.shape != shape:
                yield _finding(
                    f"`{name}` has shape {list(tensor.shape)}, but by the first layer and "
                    f"config.json it should have {list(shape)}."
                )


def _projection_shapes(attention: Attention) -> Iterator[tuple[str, tuple[int, int]]]:
    """Give every projection of the attention with the shape of its weight."""
    layout, shape = attention.layout, attention.shape
    own, shared = shape.width, shape.key_value_heads * shape.head_dim
    rows = (own, shared, shared) if layout.value is not None else (own + 2 * shared,)
    for module, count in zip(layout.inputs, rows, strict=True):
        yield module, _oriented(count, shape.hidden, head_axis=layout.head_axis)
    yield layout.output, _oriented(shape.hidden, own, head_axis=layout.head_axis)


def _oriented(rows: int, columns: int, *, head_axis: int) -> tuple[int, int]:
    return (rows, columns) if head_axis == 1 else (columns, rows)


def _surplus_tensors(tensors: Mapping[str, TensorFact], attention: Attention) -> Iterator[str]:
    """Find tensors of the attention that a removal would not know how to shorten."""
    layout, shape = attention.layout, attention.shape
    folder = layout.output.rpartition(".")[0]
    known, folders = set[str](), set[str]()
    for layer in range(shape.layers):
        folders.add(attention.names.tensor(layer, folder))
        for module in (*layout.inputs, layout.output):
            known |= {attention.weight(layer, module), attention.bias(layer, module)}
        for norm in layout.head_norms:
            name = attention.weight(layer, norm)
            if name in tensors and tensors[name].shape == (shape.head_dim,):
                known.add(name)
    for name in tensors:
        if name not in known and not name.endswith(_IGNORED) and _is_inside(name, folders):
            yield name


def _is_inside(name: str, folders: set[str]) -> bool:
    return any(name[:end] in folders for end, letter in enumerate(name) if letter == ".")


def _sentence(error: ValueError) -> str:
    text = str(error)
    return text[:1].upper() + text[1:]


def _finding(message: str) -> Finding:
    return Finding(pointer="/config/attention_heads", code=UNSUPPORTED, message=message)
