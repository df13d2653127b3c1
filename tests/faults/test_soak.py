"""The soak program at a size that can be waited for; `docs/soak.md` has the full one."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.soak.run import Soak
from bench.soak.samples import MIB, Growth
from bench.soak.summary import as_markdown

JOBS = 15


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("deployment", ["production", "embedded"])
def test_a_small_soak_keeps_every_promise(deployment: str, tmp_path: Path) -> None:
    run = Soak(tmp_path, deployment=deployment, jobs=JOBS, seed=3, kill_every_s=3.0).run()

    assert run.broken == [], as_markdown(run)
    assert sum(run.verdict.statuses.values()) == JOBS
    assert sum(run.kills.values()) > 0


def test_a_process_that_grows_is_no_flat_one() -> None:
    flat = Growth("api", 1, 600.0, rss_bytes=(100 * MIB, 105 * MIB), descriptors=(20, 22))

    assert flat.judged
    assert flat.flat
    assert not replace(flat, rss_bytes=(100 * MIB, 130 * MIB)).flat
    assert not replace(flat, descriptors=(20, 30)).flat
