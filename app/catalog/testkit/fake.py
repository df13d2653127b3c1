"""A method that computes nothing: it drives every path of the service without torch."""

from typing import Annotated, Literal

from pydantic import Field

from app.catalog.method import MethodConfig, MethodDescriptor, MetricInfo
from app.domain.errors import JobErrorCode

Trouble = Literal[
    "fail",
    "exception",
    "unprintable",
    "unpicklable",
    "odd_message",
    "several",
    "interrupt",
    "system_exit",
    "generator_exit",
    "recursion",
    "warning_as_error",
    "oom_device",
    "oom_host",
    "disk_full",
    "nan",
    "segfault",
    "bus_error",
    "sigkill",
    "exit",
    "hang",
    "processes",
    "thread",
    "descriptors",
    "directory",
    "flood",
]


class FakeConfig(MethodConfig):
    """What the fake engine does, and where it goes wrong."""

    steps: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=3, description="Steps of each phase."
    )
    step_s: Annotated[float, Field(ge=0, le=3600)] = Field(
        default=0.0, description="Seconds that a step waits."
    )
    output_bytes: Annotated[int, Field(ge=8, le=2**31)] = Field(
        default=1024, description="Size of the tensor in the output."
    )
    checkpoint_every: Annotated[int, Field(ge=0)] = Field(
        default=1, description="Steps between checkpoints; 0 makes none."
    )
    wait_for: str | None = Field(
        default=None, description="File for which the debiasing phase waits at its first step."
    )
    trouble: Trouble | None = Field(default=None, description="What goes wrong.")
    trouble_phase: Literal["evaluating_before", "debiasing", "evaluating_after", "packaging"] = (
        Field(default="debiasing", description="In which phase.")
    )
    trouble_step: Annotated[int, Field(ge=1)] = Field(default=1, description="At which step.")
    trouble_times: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="In how many attempts, counted by checkpoint; unset: in every."
    )
    fail_code: JobErrorCode = Field(
        default=JobErrorCode.INTERNAL, description="Error of the trouble `fail`."
    )
    fail_retryable: bool = Field(default=False, description="Whether `fail` may be tried again.")
    log_lines: Annotated[int, Field(ge=0)] = Field(
        default=0, description="Lines printed by each phase."
    )
    warnings: Annotated[int, Field(ge=0, le=100)] = Field(
        default=0, description="Warnings given while packaging."
    )


METHOD = MethodDescriptor(
    name="fake",
    version="1.0.0",
    title="Fake method",
    summary="Copies nothing, edits nothing, and fails as asked: for tests of the service.",
    family="pruning",
    modality=("text",),
    model_types=("*",),
    config=FakeConfig,
    engine="workers.testkit.fake_method:Engine",
    example_config={"steps": 3},
    metrics=(
        MetricInfo(
            name="fake_bias",
            title="Fake bias",
            unit="points",
            ideal=0.0,
            lower_is_better=True,
            resampling_unit="pair",
        ),
    ),
    supports_checkpoint=True,
)
