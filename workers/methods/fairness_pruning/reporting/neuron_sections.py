"""Parts of the page on neurons, directions and tokens, of an edit and of a diagnosis alike."""

from collections.abc import Sequence
from typing import Any

from workers.methods.fairness_pruning.measuring.reactions import reactions_entry
from workers.methods.fairness_pruning.reporting.evidence import Evidence
from workers.reports.document import Section, Table
from workers.reports.wording import counted


def neuron_sections(evidence: Evidence, pictures: Sequence[str]) -> tuple[Section, ...]:
    """Give the parts that have a table or one of `pictures`, given by name."""

    def drawn(*starts: str) -> tuple[str, ...]:
        return tuple(name for name in pictures if name.startswith(starts))

    sections = (
        Section(
            title="Which neurons react, and in which layers",
            text=(
                "A neuron reacts to the swapped word if its values for the two prompts of a pair "
                "lie far apart. The numbers are those of the base model, on the selection pairs.",
                *_set_sizes(evidence),
            ),
            tables=tuple(_neuron_tables(evidence)),
            figures=drawn("neuron_map"),
        ),
        Section(
            title="In which direction the outputs move",
            text=(
                "Where a layer answers the swapped word in the same direction for all pairs of a "
                "category, the colours are strong; differences of opposite sign cancel.",
            ),
            figures=drawn("layer_neuron"),
        ),
        Section(
            title="Which tokens carry the difference",
            text=(
                "The first selection pair of each category, token by token (a token is a word or "
                "a part of one). Words after the changed one differ because the model carries it "
                "along.",
            ),
            figures=drawn("heatmap", "pca"),
        ),
    )
    return tuple(part for part in sections if part.tables or part.figures)


def _set_sizes(evidence: Evidence) -> tuple[str, ...]:
    """Say how many neurons a category's set has: jobs of another kind make other sets."""
    found = evidence.neuron_map if evidence.shape.layout.is_editable else None
    if found is None:
        return ()
    sizes = sorted(set(found["set_sizes"].values()))
    share = f"1 % of the {evidence.shape.dimensions.neurons} neurons of a layer, but at least one"
    if not any(evidence.removed.values()):
        rule = f"{share}, since this job takes none out"
    elif all(evidence.removed.values()):
        rule = "as many as this job takes out of the layer"
    else:
        rule = f"as many as this job takes out of the layer, and where it takes out none, {share}"
    count = counted(sizes[0], "neuron") if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} neurons"
    return (
        f"The set of a category has {count} in each layer ({rule}). Sets of jobs that take out "
        "another number are of another size, and their overlaps do not compare.",
    )


def _neuron_tables(evidence: Evidence) -> list[Table]:
    tables = []
    overlap = evidence.neuron_map if evidence.shape.layout.is_editable else None
    if overlap is not None and overlap["overlap"]:
        tables.append(overlap_table(overlap))
    reactions = reactions_entry(evidence)
    if reactions is not None:
        tables += [layer_reaction_table(reactions), neuron_table(reactions)]
    return tables


def overlap_table(overlap: dict[str, Any]) -> Table:
    """Compare the neurons of the categories, of which there must be two or more."""
    return Table(
        title="Neurons shared between categories",
        columns=("Categories", "Jaccard index", "Random sets", "Random sets, 95th percentile"),
        rows=tuple(
            (
                " and ".join(entry["categories"]),
                entry["pooled"]["jaccard"],
                entry["pooled"]["random_mean"],
                entry["pooled"]["random_95th_percentile"],
            )
            for entry in overlap["overlap"]
        ),
        note=(
            "The neurons that react most to each category, all layers together. The Jaccard index "
            "is the share that both sets have in common; 1 means equal sets. Beside it, what sets "
            "of the same sizes drawn at random have in common."
        ),
    )


def layer_reaction_table(reactions: dict[str, Any]) -> Table:
    """Say which layers hold the neurons that react most."""
    share = f"{100 * reactions['top_share']:g} %"
    return Table(
        title="How strongly the neurons of each layer react",
        columns=("Layer", "Mean bias score", "Largest", f"Of the top {share}"),
        rows=tuple(
            (entry["layer"], entry["mean_score"], entry["max_score"], entry["in_top"])
            for entry in reactions["layers"]
        ),
        note=(
            "The bias score of a neuron is how far its values for the two prompts lie apart, as a "
            "mean over tokens and pairs. The last column counts the "
            f"{counted(reactions['top_count'], 'neuron')} with the highest scores of the whole "
            "model."
        ),
        is_folded=True,
    )


def neuron_table(reactions: dict[str, Any]) -> Table:
    """List the neurons of each layer that react most, with how much they matter otherwise."""
    return Table(
        title="Neurons that react most",
        columns=(
            "Layer",
            "Neuron",
            "Bias score",
            "Times layer mean",
            "Importance rank",
            "More important than %",
        ),
        rows=tuple(
            (
                layer["layer"],
                entry["neuron"],
                entry["score"],
                entry["times_layer_mean"],
                entry["importance_rank"],
                entry["importance_percentile"],
            )
            for layer in reactions["layers"]
            for entry in layer["neurons"]
        ),
        note=(
            "Importance rank 1 is the neuron of its layer that matters most to the model; the last "
            "column is the share of the layer's other neurons that matter less. A neuron that "
            "reacts strongly and matters little is what Fairness Pruning takes out first."
        ),
        is_folded=True,
    )
