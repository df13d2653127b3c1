"""Fairness Pruning: remove the MLP neurons that react most to a swapped demographic word."""

from app.catalog.fairness_pruning.check import check
from app.catalog.fairness_pruning.config import FairnessPruningConfig
from app.catalog.fairness_pruning.resolve import resolve
from app.catalog.method import MethodDescriptor, MetricInfo, Reference
from app.domain.architectures import layout_model_types


def _difference(name: str, title: str, unit: str) -> MetricInfo:
    return MetricInfo(
        name=name,
        title=title,
        unit=unit,
        ideal=0.0,
        lower_is_better=True,
        resampling_unit="pair",
    )


METHOD = MethodDescriptor(
    name="fairness_pruning",
    version="1.1.0",
    title="Fairness Pruning",
    summary=(
        "Finds the MLP neurons that react most to a demographic word swapped between two "
        "otherwise equal prompts and that matter least to the model, and removes them from "
        "every layer. The result is a smaller checkpoint that loads in plain transformers."
    ),
    family="pruning",
    modality=("text",),
    model_types=layout_model_types(),
    config=FairnessPruningConfig,
    engine="workers.methods.fairness_pruning.engine:Engine",
    example_config={"preset": "article", "fraction": 0.01, "pairs": ["race", "gender"]},
    metrics=(
        _difference(
            "bias_metric_parity", "Mean activation difference over components", "activation"
        ),
        _difference("bias_metric_mlp", "Mean difference of MLP outputs", "activation"),
        _difference("bias_metric_attention", "Mean difference of attention outputs", "activation"),
        _difference(
            "bias_metric_relative", "Difference relative to the activations", "share of magnitude"
        ),
    ),
    supports_checkpoint=True,
    references=(
        Reference(
            title="Importance of GLU neurons from the range of their weights (arXiv 2512.22671)",
            url="https://arxiv.org/abs/2512.22671",
        ),
        Reference(
            title="optiPfair, the library by the author of the article on Fairness Pruning",
            url="https://github.com/peremartra/optipfair",
        ),
    ),
    resolve=resolve,
    check=check,
)
