"""The memory of the region: made, found and mapped by ``Region.create`` and ``Region.attach``."""

LAYOUT_VERSION: int

class RegionMemory:
    """A mapping. Raises IndexError for a process that does not exist."""

    fd: int
    boot_id: int
    processes: int
    workers: int
    series: int
