"""The containers run as nobody in particular, on files they cannot change, with what was tested."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
SERVICES: dict[str, Any] = yaml.safe_load(
    (REPOSITORY / "docker-compose.yml").read_text(encoding="utf-8")
)["services"]
STAGES = re.split(r"(?m)^FROM \S+ AS ", (REPOSITORY / "Dockerfile").read_text(encoding="utf-8"))[1:]


@pytest.mark.parametrize("name", ["api", "worker"])
def test_service_has_a_read_only_root_and_no_privileges(name: str) -> None:
    service = SERVICES[name]

    assert service["read_only"] is True
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in service


def test_only_the_api_is_reached_from_outside_and_only_from_this_machine() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}

    assert ports == {"api": ["127.0.0.1:8000:8000"]}


@pytest.mark.parametrize("stage", STAGES[1:], ids=lambda text: text.split()[0])
def test_image_runs_as_a_user_and_installs_what_was_tested(stage: str) -> None:
    instructions = [line.split(maxsplit=1) for line in stage.splitlines() if line.strip()]
    users = [
        rest for word, rest in (pair for pair in instructions if len(pair) == 2) if word == "USER"
    ]

    assert users[-1] not in ("root", "0")
    assert "pip install -c constraints.txt" in stage
