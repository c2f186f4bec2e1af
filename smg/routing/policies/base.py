"""What a routing policy provides, and what it may work with."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from smg._native.prefix_index import PrefixIndex
from smg._native.region import Region
from smg.config.settings import RoutingSettings
from smg.routing.candidates import Candidates
from smg.routing.router import Lesson, Query


class Sequences(Protocol):
    """The shared counters of the region that policies may draw from."""

    def sequence_next(self, sequence: int) -> int: ...


@dataclass(frozen=True)
class Parts:
    """What a policy is made of."""

    settings: RoutingSettings
    region: Region

    @property
    def index(self) -> PrefixIndex:
        """The gateway's prefix index. Raises ValueError in a process that is not part of the gateway."""
        if self.region.index is None:
            raise ValueError("this process has no prefix index to route by")
        return self.region.index


class Choice(NamedTuple):
    """A candidate's position and, in one word, why it was chosen.

    ``matched`` is how many tokens of the prompt the worker is expected to hold already. ``lesson`` is what can be
    learnt from it. ``policy`` names the one that chose, where it is not the one that was asked.
    """

    position: int
    reason: str
    matched: int = 0
    lesson: Lesson | None = None
    policy: str = ""

    def by(self, policy: str) -> "Choice":
        """The same, of which ``policy`` is the one that chose."""
        return Choice(self.position, self.reason, self.matched, self.lesson, policy)


class Policy(Protocol):
    """Chooses among candidates. State that other processes would have to know is kept in shared memory only."""

    @property
    def name(self) -> str: ...

    def choose(self, query: Query, candidates: Candidates) -> Choice:
        """Choose one of ``candidates``, which are not empty."""
        ...
