"""What all processes of a gateway count together to keep its limits."""

from smg._native.region_workers import RegionWorkers

class RegionLimits(RegionWorkers):
    """Admitted and waiting requests of each process, and one token bucket."""

    # admitted requests
    def requests_add(self, process: int, delta: int) -> int:
        """Count admitted requests of a process; returns the new sum over all processes."""

    def requests_total(self) -> int: ...

    # the line before admission: how many wait, and who is next
    def waiting_add(self, process: int, delta: int) -> int:
        """Count requests of a process that wait to be admitted; returns the new sum over all processes."""

    def waiting_total(self) -> int: ...
    def waiting_ticket(self) -> int:
        """Draw the next place in the line of all processes (1 upwards)."""

    def waiting_head_set(self, process: int, ticket: int) -> None:
        """Show the lowest ticket that waits in the process; 0 when none does."""

    def waiting_head(self) -> int:
        """Lowest ticket that any process shows; 0 when nobody waits."""

    # one token bucket for all processes: ``burst`` tokens, and one more every ``interval`` nanoseconds
    def rate_wait(self, now: int, interval: int, burst: int) -> int:
        """Nanoseconds until there is a token, at the monotonic time ``now`` (nanoseconds); 0: there is one."""

    def rate_take(self, now: int, interval: int, burst: int) -> int:
        """Take a token if ``rate_wait`` is 0; returns what that was."""
