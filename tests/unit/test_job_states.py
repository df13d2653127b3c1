import itertools

import pytest

from app.domain.errors import InvalidState
from app.domain.states import Actor, JobStatus, check_transition

S, A = JobStatus, Actor

# Written from the design's table, not from the code: who may move a job from where to where.
ALLOWED = {
    (S.PENDING, S.QUEUED): {A.MAINTENANCE, A.WORKER},
    (S.PENDING, S.CANCELLED): {A.API, A.MAINTENANCE, A.WORKER, A.REAPER},
    (S.QUEUED, S.RUNNING): {A.WORKER},
    (S.QUEUED, S.CANCELLED): {A.API},
    (S.PAUSED, S.CANCELLED): {A.API, A.MAINTENANCE},
    (S.RUNNING, S.CANCELLING): {A.API},
    (S.RUNNING, S.CANCELLED): {A.WORKER, A.REAPER},
    (S.CANCELLING, S.CANCELLED): {A.WORKER, A.REAPER},
    (S.RUNNING, S.PAUSED): {A.WORKER},
    (S.RUNNING, S.SUCCEEDED): {A.WORKER},
    (S.RUNNING, S.FAILED): {A.WORKER, A.REAPER},
    (S.RUNNING, S.QUEUED): {A.WORKER, A.REAPER},
    (S.PAUSED, S.QUEUED): {A.API},
    (S.FAILED, S.QUEUED): {A.API},
    (S.CANCELLED, S.QUEUED): {A.API},
}
CASES = list(itertools.product(JobStatus, JobStatus, Actor))


@pytest.mark.parametrize(("source", "target", "actor"), CASES)
def test_a_change_of_status_is_allowed_exactly_where_the_design_allows_it(
    source: JobStatus, target: JobStatus, actor: Actor
) -> None:
    if actor in ALLOWED.get((source, target), set()):
        assert check_transition(source, target, actor).event.startswith("job.")
    else:
        with pytest.raises(InvalidState):
            check_transition(source, target, actor)


def test_nothing_leaves_a_succeeded_job() -> None:
    assert not [target for source, target in ALLOWED if source is S.SUCCEEDED]
