"""Every period of the service, derived from one number: the lease."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timing:
    """Periods in seconds. The defaults of a deployment come from a lease of 60 s.

    Attributes
    ----------
    lease_ttl_s
        How long a claimed job stays its worker's without a heartbeat.
    heartbeat_s
        Period of the heartbeat; four of them fit into a lease, so that three may be lost.
    stop_poll_s
        How often an attempt looks for a cancel, a drain or its time limit.
    stop_grace_s
        How long an engine may take to stop before the process ends itself.
    last_lines_s
        How long an attempt that has to stop waits for the store to take its last log lines. The
        process that ends itself renews no lease meanwhile.
    reaper_s
        Period of the search for expired leases.
    resend_s
        A message not claimed for this long while a slot is idle was lost and is sent again.
    worker_seen_s
        Period in which a worker writes its row.
    worker_timeout_s
        A worker not seen for this long is lost.
    relay_min_s, relay_max_s
        Bounds of the outbox relay's idle back-off.
    outbox_retry_s
        How long a claimed outbox row is invisible to other relays.
    dispatch_s
        Period of dispatch without any trigger.
    outage_stop_s
        An attempt that cannot reach the database for this long stops.
    backoff_s, backoff_max_s
        First and longest delay before a lost or failed attempt is repeated.
    """

    lease_ttl_s: float
    heartbeat_s: float
    stop_poll_s: float
    stop_grace_s: float
    last_lines_s: float
    reaper_s: float
    resend_s: float
    worker_seen_s: float
    worker_timeout_s: float
    relay_min_s: float
    relay_max_s: float
    outbox_retry_s: float
    dispatch_s: float
    outage_stop_s: float
    backoff_s: float
    backoff_max_s: float

    @classmethod
    def from_lease(cls, lease_ttl_s: float) -> "Timing":
        """Derive all periods from the lease, in the proportions decided for 60 s."""
        unit = lease_ttl_s / 60
        return cls(
            lease_ttl_s=lease_ttl_s,
            heartbeat_s=15 * unit,
            stop_poll_s=min(2.0, 15 * unit),
            stop_grace_s=30 * unit,
            last_lines_s=10 * unit,
            reaper_s=10 * unit,
            resend_s=60 * unit,
            worker_seen_s=15 * unit,
            worker_timeout_s=90 * unit,
            relay_min_s=0.5 * min(1.0, unit),
            relay_max_s=5 * min(1.0, unit),
            outbox_retry_s=60 * unit,
            dispatch_s=5 * min(1.0, unit),
            outage_stop_s=900 * unit,
            backoff_s=15 * unit,
            backoff_max_s=600 * unit,
        )

    def backoff(self, failures: int) -> float:
        """Delay before the next attempt after `failures` (at least 1) failed ones."""
        return float(min(self.backoff_max_s, self.backoff_s * 2 ** (max(failures, 1) - 1)))
