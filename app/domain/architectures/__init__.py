"""Decoder families: where each keeps the neurons of its MLPs, and whether a model fits its family.

`table` is the data, `layout` what can be asked of one row, `check` holds a model against its row.
"""

from app.domain.architectures.check import FLOAT_DTYPES, check_diagnosis, check_mlps
from app.domain.architectures.layout import (
    MlpDimensions,
    MlpLayout,
    Projection,
    Role,
    TensorNames,
)
from app.domain.architectures.table import LAYOUTS, find_layout, layout_model_types

__all__ = [
    "FLOAT_DTYPES",
    "LAYOUTS",
    "MlpDimensions",
    "MlpLayout",
    "Projection",
    "Role",
    "TensorNames",
    "check_diagnosis",
    "check_mlps",
    "find_layout",
    "layout_model_types",
]
