"""A fleet as control would publish it, for tests that have no control process."""

from smg.fleet.published import Published, encode, parts_of
from smg.fleet.records import FleetSnapshot


def blob(fleet: FleetSnapshot) -> bytes:
    """What the region has to hold for readers to see ``fleet``."""
    workers, models = parts_of(fleet.workers), parts_of(fleet.models)
    return encode(Published(fleet.version, workers, models, fleet.refused, fleet.tokenizers))
