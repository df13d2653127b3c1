import pytest

from app.dispatch.timing import Timing


def test_a_lease_of_60_s_gives_the_decided_periods() -> None:
    timing = Timing.from_lease(60)

    assert (timing.heartbeat_s, timing.reaper_s, timing.resend_s) == (15, 10, 60)
    assert (timing.worker_timeout_s, timing.outage_stop_s) == (90, 900)


@pytest.mark.parametrize("lease_s", [1, 3, 60, 600])
def test_three_heartbeats_may_be_lost_before_a_lease_expires(lease_s: float) -> None:
    timing = Timing.from_lease(lease_s)

    assert timing.heartbeat_s * 1.1 * 3 < timing.lease_ttl_s  # 10 % jitter


def test_backoff_doubles_up_to_its_bound() -> None:
    timing = Timing.from_lease(60)

    assert [timing.backoff(n) for n in (0, 1, 2, 3, 10)] == [15, 15, 30, 60, 600]
