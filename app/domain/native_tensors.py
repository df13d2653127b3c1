"""What tensors the library's own classes expect, and where a checkpoint differs from them."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from app.domain.architectures import MlpLayout, find_layout
from app.domain.errors import Finding
from app.domain.models import ModelFacts, TensorFact
from app.domain.native_derived import DERIVED_FAMILIES
from app.domain.native_table import NATIVE_FAMILIES, NativeFamily

_FAMILIES = {name: row for row in (*NATIVE_FAMILIES, *DERIVED_FAMILIES) for name in row.model_types}
# The families whose tensors this module can list.
NATIVE_MODEL_TYPES = frozenset(_FAMILIES)
_MAX_LAYERS = 1000
# The largest published models of experts have about 50,000; a config may claim any number.
_MAX_TENSORS = 100_000

# Activations of transformers 5.24 that have no parameters of their own.
# fmt: off
ACTIVATIONS = frozenset({
    "gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python",
    "gelu_python_tanh", "gelu_pytorch_tanh", "hardswish", "laplace", "leaky_relu", "linear",
    "mish", "quick_gelu", "relu", "relu2", "relu6", "sigmoid", "silu", "sqrtsoftplus", "swish",
    "tanh",
})
# fmt: on
_OUTPUT_HEAD = "lm_head.weight"
# GPT-NeoX files have it by another name than the class.
_OTHER_HEAD = "embed_out.weight"
# Causal masks, the constant that filled them, and rotary frequencies: saved by old versions of the
# library, computed by all later ones. Looked at only where a class expects no such tensor.
_OLD_BUFFERS = (
    ".attn.bias",
    ".attn.masked_bias",
    ".attn.causal_mask",
    ".attention.bias",
    ".attention.masked_bias",
    ".rotary_emb.inv_freq",
)
_MAX_FINDINGS = 20

Shape = tuple[int, ...]


def check_native_tensors(facts: ModelFacts) -> tuple[Finding, ...]:
    """Say where config.json and the tensors of a known family contradict each other.

    Looks at what loading would only find in a worker: rows of the embeddings, sizes of the
    attention heads, missing and surplus tensors, the activation. Empty for other families.
    """
    if facts.model_type not in NATIVE_MODEL_TYPES:
        return ()
    try:
        expected = dict(expected_tensors(facts.config))
    except ValueError as exc:
        return (_finding(str(exc)),)
    found = [*_setting_findings(facts.config), *_tensor_findings(expected, facts)]
    return tuple(islice(found, _MAX_FINDINGS))


def differences(
    expected: Mapping[str, Shape], tensors: Mapping[str, TensorFact]
) -> Iterator[tuple[str, Shape | None, Shape | None]]:
    """Give name, expected and found shape of each tensor that differs; None for none.

    The output head may be missing: it is then tied.
    """
    roots = sorted({name.partition(".")[0] for name in expected} - {"lm_head"})
    found = {_as_in_class(name, expected, roots): tensor.shape for name, tensor in tensors.items()}
    found = {n: shape for n, shape in found.items() if n in expected or not is_old_buffer(n)}
    for name in sorted(expected.keys() | found.keys()):
        is_tied = name == _OUTPUT_HEAD and name not in found
        if expected.get(name) != found.get(name) and not is_tied:
            yield name, expected.get(name), found.get(name)


def is_old_buffer(name: str) -> bool:
    """Whether a tensor that no class expects is one that old versions saved without need."""
    return name.endswith(_OLD_BUFFERS)


def _as_in_class(name: str, expected: Mapping[str, Shape], roots: list[str]) -> str:
    """Name a tensor as in the class: the library also loads files saved without the head."""
    if name in expected:
        return name
    if name == _OTHER_HEAD:
        return _OUTPUT_HEAD
    return next((rooted for r in roots if (rooted := f"{r}.{name}") in expected), name)


def _setting_findings(config: Mapping[str, Any]) -> Iterator[Finding]:
    family = _FAMILIES.get(str(config["model_type"]))
    field = None if family is None else family.activation_field
    activation = None if field is None else config.get(field)
    if activation is not None and str(activation) not in ACTIVATIONS:
        known = ", ".join(sorted(ACTIVATIONS))
        yield _finding(f"config.json has a `{field}` that does not exist; known are: {known}.")
    sizes = _Sizes(config)
    if sizes.heads % sizes.key_value_heads:
        yield _finding(
            f"config.json says {sizes.heads} attention heads share {sizes.key_value_heads} "
            "key-value heads; the first must be a multiple of the second."
        )


def _tensor_findings(expected: Mapping[str, Shape], facts: ModelFacts) -> Iterator[Finding]:
    for name, wanted, found in differences(expected, facts.tensors):
        if wanted is None:
            message = f"`{name}` is not part of this architecture as config.json describes it"
        elif found is None:
            message = f"`{name}` is missing"
        else:
            message = f"`{name}` has shape {list(found)}, config.json says {list(wanted)}"
        yield _finding(f"{message}; weights and config are not of the same model.")
    untied = facts.config.get("tie_word_embeddings") is False
    if untied and not {_OUTPUT_HEAD, _OTHER_HEAD} & facts.tensors.keys():
        yield _finding(
            f"`{_OUTPUT_HEAD}` is missing, and config.json does not tie it to the embeddings."
        )


def _finding(message: str) -> Finding:
    return Finding(pointer="/model", code="checkpoint_inconsistent", message=message)


def expected_tensors(config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    """Name every tensor of the library's class for `model_type`, with its shape.

    The output head is among them, though a checkpoint may leave it out where it is tied.

    Raises
    ------
    ValueError
        A size in config.json is missing, or no usable number, or there are far too many tensors.
    """
    for count, tensor in enumerate(_every_tensor(config)):
        if count == _MAX_TENSORS:
            raise ValueError(
                f"The sizes in config.json come to more than {_MAX_TENSORS} tensors. Correct them."
            )
        yield tensor


def _every_tensor(config: Mapping[str, Any]) -> Iterator[tuple[str, Shape]]:
    sizes = _Sizes(config)
    yield from _tensors(sizes, sizes.family.around)
    if sizes.layers > _MAX_LAYERS:
        raise ValueError(f"config.json says {sizes.layers} layers; correct it.")
    dense, sparse = (
        list(islice(_tensors(sizes, sizes.family.layer, is_sparse=kind), _MAX_TENSORS + 1))
        for kind in (False, True)
    )
    for index in range(sizes.layers):
        for name, shape in dense if index < sizes.dense_layers else sparse:
            yield sizes.layout.module(index, name), shape


class _Sizes:
    """What the letters of the table stand for in one config; raises ValueError on a bad size."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        model_type = str(config["model_type"])
        self.family, self.layout = _rows(model_type)
        self._config = config = {**config, **self.family.derive(config)}
        self.layers = self._size(*self.layout.layers_fields)
        hidden = self._size(*self.layout.hidden_fields)
        self.heads = self._size(*self.family.heads_field)
        self.key_value_heads = self._key_value_heads()
        head_dim = max(hidden // self.heads, 1)
        if self.family.reads_head_dim:
            head_dim = self._size(
                "head_dim", default=self.family.defaults.get("head_dim", head_dim)
            )
        query, key = self.heads * head_dim, self.key_value_heads * head_dim
        neurons = self._neurons(hidden)
        self.letters = {
            "v": self._size("vocab_size"),
            "h": hidden,
            "i": neurons,
            "j": 2 * neurons,
            "a": self.heads,
            "b": self.key_value_heads,
            "d": head_dim,
            "q": query,
            "k": key,
            "t": query + 2 * key,
        }
        positions = self.layout.max_positions({**self.family.defaults, **config})
        if positions is not None:
            self.letters["p"] = positions
        for letter, name in self.family.letters.items():
            if config.get(name) is not None:
                self.letters[letter] = self._size(name)

    @property
    def dense_layers(self) -> int:
        """Number of first layers without experts: all in most families."""
        if self.family.dense_layers_field is None:
            return self.layers
        count = self._config.get(self.family.dense_layers_field)
        if type(count) is not int or count < 0:
            raise ValueError(
                f"config.json must give {self.family.dense_layers_field} as a whole number. "
                "Correct it."
            )
        return count

    def has(self, condition: str, *, is_sparse: bool) -> bool:
        """Say whether the tensors exist that the table gives this condition."""
        name = condition[1:]
        default = is_sparse if name == "is_sparse" else self.family.defaults.get(name, False)
        is_set = bool(self._config.get(name, default))
        return is_set == condition.startswith("?")

    def _key_value_heads(self) -> int:
        # Where the key is there but null, the classes take as many as there are heads.
        if not self.family.shares_heads:
            return self.heads
        name = "num_key_value_heads"
        is_named = name in self._config or name not in self.family.defaults
        return self._size(name, default=self.heads if is_named else self.family.defaults[name])

    def _neurons(self, hidden: int) -> int:
        expansion, field = self.layout.default_expansion, self.layout.size_field
        default = None if expansion is None else expansion * hidden
        if field is None:
            return default or hidden
        return self._size(field, default=default)

    def _size(self, *fields: str, default: int | None = None) -> int:
        given = next((f for f in fields if self._config.get(f) is not None), fields[0])
        value = self._config.get(given)
        if value is None:
            value = self.family.defaults.get(given) if default is None else default
        if type(value) is not int or not 0 < value < 2**31:
            raise ValueError(
                f"config.json must give {given} as a whole number above 0. Correct it."
            )
        return value


def _rows(model_type: str) -> tuple[NativeFamily, MlpLayout]:
    family, layout = _FAMILIES.get(model_type), find_layout(model_type)
    if family is None or layout is None:
        raise ValueError(f"the tensors of model_type {model_type} are not listed")
    return family, layout


def _tensors(sizes: _Sizes, lines: str, *, is_sparse: bool = False) -> Iterator[tuple[str, Shape]]:
    """Read the lines of the table, leaving out tensors that this model does not have."""
    for line in filter(None, map(str.strip, lines.splitlines())):
        name, *words = line.split()
        conditions = [word for word in words if word[0] in "?!"]
        if not all(sizes.has(condition, is_sparse=is_sparse) for condition in conditions):
            continue
        shape = tuple(sizes.letters[word] for word in words if word not in conditions)
        repeated = next((letter for letter in "abe" if f"{{{letter}}}" in name), None)
        if repeated is None:
            yield name, shape
            continue
        for number in range(sizes.letters[repeated]):
            yield name.replace(f"{{{repeated}}}", str(number)), shape
