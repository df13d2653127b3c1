"""The width that the layers of an edited model store, and what a width is good for.

A config has one number for the width of all layers. Whatever runs the model later may need it to
be a multiple: matrix units of processors are fastest with multiples of 8 or 16, and quantisers
refuse or pad a row that their blocks do not divide.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType

from app.catalog.fairness_pruning.amounts import removal_counts, requested_total
from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.domain.architectures import MlpDimensions

# Block sizes: GGUF has 32 values in a block of Q4_0 to Q8_0, and 256 in a super-block of the
# k-quants; GPTQ and AWQ are published with groups of 128, and of 64 where 128 does not divide.
# Tensor parallel splits leave every device with a whole number of such groups.
WIDTH_NEEDS: Mapping[int, str] = MappingProxyType(
    {
        8: "matrix units",
        16: "matrix units",
        32: "GGUF quantisation blocks",
        64: "GPTQ and AWQ groups",
        128: "GPTQ and AWQ groups",
        256: "GGUF k-quants, tensor parallel splits",
    }
)

# The loss of 8 or 16 alone costs some speed and excludes nothing.
_WORTH_TELLING = 32


@dataclass(frozen=True, slots=True)
class WidthOption:
    """What `round_to_multiple` would do: the width, and the share of all neurons removed."""

    multiple: int
    width: int
    effective_fraction: float


@dataclass(frozen=True, slots=True)
class Width:
    """The width of a model before and after an edit.

    Fractions are of all neurons of the model, as asked for and as carried out. `lost` names the
    multiples of `WIDTH_NEEDS` that divide `base` but not `stored`; it is empty when nothing of
    consequence is lost. `options` has the ways to win one back, each width once with its largest
    multiple. `pads` says that rounding adds zero neurons, `can_round` that the config allows it.
    """

    base: int
    stored: int
    requested_fraction: float
    effective_fraction: float
    lost: tuple[int, ...]
    options: tuple[WidthOption, ...]
    pads: bool
    can_round: bool

    @property
    def advice(self) -> str | None:
        """Say what the stored width is no longer fit for, and what would help; None if nothing."""
        if not self.lost:
            return None
        needs = [
            f"{' or '.join(map(str, multiples))} ({need})"
            for need, multiples in groupby(self.lost, key=WIDTH_NEEDS.__getitem__)
        ]
        stored = (
            f"Layers store {self.stored} of {self.base} neurons, no longer a multiple of "
            f"{_listed(needs)}."
        )
        if not self.options:
            return f"{stored} Where one is needed, {self._without_options}."
        if self.pads:
            setting = "`round_to_multiple` and `round_direction` `up`, which adds zero neurons"
            widths = [f"{option.multiple} gives {option.width}" for option in self.options]
        else:
            setting = "`round_to_multiple`"
            widths = [
                f"{option.multiple} gives {option.width} "
                f"({100 * option.effective_fraction:.3g} % removed)"
                for option in self.options
            ]
        return f"{stored} Where one is needed, set {setting}: {'; '.join(widths)}."

    @property
    def _without_options(self) -> str:
        """Say what helps where no smaller width would do."""
        if not self.can_round:
            return "name another number of neurons"
        if self.pads:
            return (
                "`round_to_multiple` with `round_direction` `up` adds zero neurons, here up to "
                f"the {self.base} of before: the model is then no smaller"
            )
        return f"mode `zero` keeps the {self.base} neurons of before: no smaller width has it"


def stored_width(
    config: FairnessPruningConfig, dimensions: MlpDimensions, counts: Mapping[int, int]
) -> int:
    """Count the neurons that every layer of the edited model stores.

    The layer that loses least decides; zero neurons fill up the others. With scope `global` they
    also fill up to the multiple asked for, never beyond the width of the base.

    Parameters
    ----------
    counts
        Number of neurons removed from each layer, every layer of the model included.
    """
    if config.mode != "prune":
        return dimensions.neurons
    kept = dimensions.neurons - min(counts.values())
    if config.scope == "per_layer" or config.round_to_multiple is None:
        return kept
    return min(_up(kept, config.round_to_multiple), dimensions.neurons)


def describe_width(
    config: FairnessPruningConfig, dimensions: MlpDimensions, counts: Mapping[int, int]
) -> Width:
    """Say what becomes of the width when `counts` neurons go from each layer.

    Parameters
    ----------
    counts
        As in `stored_width`: planned at the check, or as carried out in the report.
    """
    total = dimensions.layers * dimensions.neurons
    base, stored = dimensions.neurons, stored_width(config, dimensions, counts)
    lost = tuple(m for m in WIDTH_NEEDS if base % m == 0 and stored % m != 0)
    if not any(multiple >= _WORTH_TELLING for multiple in lost):
        lost = ()
    options = {
        option.width: option
        for multiple in lost
        if (option := _option(config, dimensions, counts, multiple)) is not None
    }
    return Width(
        base=base,
        stored=stored,
        requested_fraction=float(requested_total(config, dimensions) / total),
        effective_fraction=sum(counts.values()) / total,
        lost=lost,
        options=tuple(options.values()),
        pads=config.scope == "global",
        can_round=config.neuron_indices is None,
    )


def _option(
    config: FairnessPruningConfig,
    dimensions: MlpDimensions,
    counts: Mapping[int, int],
    multiple: int,
) -> WidthOption | None:
    """Work out one rounding; None where it would bring the base's width back, or cannot be."""
    if config.neuron_indices is not None or multiple < _WORTH_TELLING:
        return None
    direction = "up" if config.scope == "global" else "down"
    rounded = config.model_copy(
        update={"round_to_multiple": multiple, "round_direction": direction}
    )
    if config.scope == "per_layer":
        counts = removal_counts(rounded, dimensions)
    width = stored_width(rounded, dimensions, counts)
    if width == dimensions.neurons:
        return None
    share = sum(counts.values()) / (dimensions.layers * dimensions.neurons)
    return WidthOption(multiple=multiple, width=width, effective_fraction=share)


def _up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _listed(parts: list[str]) -> str:
    *head, last = parts
    return f"{', '.join(head)} and {last}" if head else last
