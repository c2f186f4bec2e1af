"""The supervisor: owns the sockets and the region, forks, watches, restarts and drains (DESIGN 2).

It stays single-threaded and starts no event loop and no gRPC object, so that every fork is a clean copy.
"""

import gc
import logging
import os
import selectors
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from typing import Any, TypeAlias

from smg._native.region import Region
from smg.config import Settings
from smg.core import clock
from smg.fleet import roles
from smg.fleet.published import read
from smg.fleet.records import FleetSnapshot
from smg.server import process
from smg.server.engine_child import EngineCommand
from smg.server.roles import Role
from smg.server.sockets import open_listeners
from smg.telemetry.metrics import Metrics

log = logging.getLogger("smg.server")

ControlBody: TypeAlias = Callable[[Settings, Region, Sequence[str]], object]
WorkerBody: TypeAlias = Callable[[Settings, Region, int, socket.socket], int | None]

SERIES = 16384
# What the processes get on top of their own limits before they are killed.
MARGIN_SECONDS = 5.0
STOP_SECONDS = 10.0
WATCH_SECONDS = 0.25


class Phase(Enum):
    """The life of a gateway, in this order."""

    SERVING = "serving"
    SETTLING = "settling"  # readiness says no, requests are served
    FINISHING = "finishing"  # nothing new is accepted, running requests end
    STOPPING = "stopping"  # no workers any more; control and engine end


class Supervisor:
    """One gateway.

    Args:
        settings: all settings; ``server`` and ``embedded`` are used here.
        control: body of the control process.
        worker: body of a request worker, given its process number (1 upwards) and listening socket.
        lifeline: a descriptor whose end of file means that whoever wanted this gateway is gone.
        on_listening: called once with the port when connections are accepted.
        on_serving: called once with the ids of the models when the first engine can be used.
    """

    def __init__(
        self,
        settings: Settings,
        control: ControlBody,
        worker: WorkerBody,
        *,
        lifeline: int | None = None,
        on_listening: Callable[[int], None] = lambda _port: None,
        on_serving: Callable[[list[str]], None] = lambda _models: None,
    ) -> None:
        self.settings = settings
        self._control = control
        self._worker = worker
        self._on_listening = on_listening
        self._on_serving = on_serving
        count = settings.server.workers
        self.listeners = open_listeners(settings.server.host, settings.server.port, count)
        self.port: int = self.listeners[0].getsockname()[1]
        self.region = Region.create(
            processes=count + 2,
            workers=settings.fleet.max_workers,
            series=SERIES,
            index_bytes=settings.routing.max_tree_size,
        )
        self._engine = (
            EngineCommand(settings.embedded, settings.server.state_dir) if settings.embedded.embedded_engine else None
        )
        self._metrics = Metrics(self.region, count + 1)
        self._selector = selectors.EpollSelector()
        self._lifeline = lifeline
        self._wakeup, self._waker = socket.socketpair()
        self._phase = Phase.SERVING
        self._deadline: float | None = None
        self._signals = 0
        self._killed = False
        self._failed = False
        self._announced = False
        self.roles = self._make_roles()

    def run(self) -> int:
        """Keep the gateway alive until told to stop; returns the exit status (0: nothing was cut off, nor failed)."""
        self.region.claim_process(self.settings.server.workers + 1, os.getpid())
        handlers = self._take_signals()
        try:
            # What exists now is shared with all children: the collector must not touch its pages.
            gc.collect()
            gc.freeze()
            for role in self.roles:
                self._start(role)
            self._on_listening(self.port)
            while self._phase is not Phase.STOPPING or self._alive():
                for key, _ in self._selector.select(self._patience()):
                    key.data()
                self._restart_due()
                self._advance()
                self._announce()
        finally:
            self._kill_all()
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(-1)
            self._close()
        return int(self._killed or self._failed)

    # starting

    def _make_roles(self) -> list[Role]:
        urls = [] if self._engine is None else [self._engine.url]

        def control() -> process.Child:
            return process.fork(lambda: self._run_control(urls), self._descriptors(), "smg-control")

        def worker(number: int) -> Callable[[], process.Child]:
            own = self.listeners[number - 1]

            def start() -> process.Child:
                return process.fork(
                    lambda: self._worker(self.settings, self.region, number, own),
                    self._descriptors(keep=own.fileno()),
                    f"smg-worker-{number}",
                )

            return start

        roles = [Role("control", "control", 0, control)]
        roles += [Role(f"worker {i + 1}", "worker", i + 1, worker(i + 1)) for i in range(len(self.listeners))]
        if self._engine is not None:
            command = self._engine.command()
            roles.append(Role("engine", "engine", None, lambda: process.spawn(command)))
        return roles

    def _run_control(self, urls: Sequence[str]) -> int:
        self._control(self.settings, self.region, urls)
        return 0

    def _descriptors(self, keep: int = -1) -> list[int]:
        """The supervisor's own descriptors, which a child has no business with."""
        mine = [listener.fileno() for listener in self.listeners if listener.fileno() not in (-1, keep)]
        mine += [self._selector.fileno(), self._wakeup.fileno(), self._waker.fileno()]
        mine += [role.child.pidfd for role in self.roles if role.child is not None]
        return mine if self._lifeline is None else [*mine, self._lifeline]

    def _start(self, role: Role) -> None:
        child = role.start()
        if role.process is not None:
            self.region.claim_process(role.process, child.pid)
        self._selector.register(child.pidfd, selectors.EVENT_READ, lambda: self._ended(role))

    # watching

    def _ended(self, role: Role) -> None:
        child = role.child
        assert child is not None
        self._selector.unregister(child.pidfd)
        how = process.reap(child)
        if role.process is not None:
            self.region.clear_process(role.process)
        delay = role.ended(how)
        if self._restarts and role.hopeless:
            log.error("%s cannot be started (%s each time), stopping", role.name, how, extra={"ended": child.pid})
            self._give_up()
        elif self._restarts:
            log.error("%s ended (%s), restarting", role.name, how, extra={"ended": child.pid, "delay_seconds": delay})
            self._metrics.process_restarts_total.inc(role.kind)
        else:
            role.restart_at = None
            log.info("%s ended (%s)", role.name, how, extra={"ended": child.pid})

    def _give_up(self) -> None:
        """Stop at once, as failed: nothing that ran before is lost by it."""
        self._failed = True
        for listener in self.listeners:
            listener.close()
        for kind in ("worker", "control", "engine"):
            self._signal(kind, signal.SIGTERM)
        self._enter(Phase.STOPPING, STOP_SECONDS)

    @property
    def _restarts(self) -> bool:
        return self._phase in (Phase.SERVING, Phase.SETTLING)

    def _restart_due(self) -> None:
        now = clock.monotonic()
        for role in self.roles:
            if role.restart_at is None or role.restart_at > now or not self._restarts:
                continue
            try:
                self._start(role)
            except OSError as error:
                log.error("%s cannot be started: %s", role.name, error.strerror)
                role.ended()

    def _patience(self) -> float | None:
        """Seconds until something is due, or None."""
        now = clock.monotonic()
        due = [role.restart_at for role in self.roles if role.restart_at is not None]
        if self._deadline is not None:
            due.append(self._deadline)
        if not self._announced:
            due.append(now + WATCH_SECONDS)
        return max(0.0, min(due) - now) if due else None

    def _announce(self) -> None:
        if self._announced or not self.region.snapshot_version():
            return
        snapshot = read(self.region.snapshot()[1])
        models = servable(snapshot)
        if models:
            self._announced = True
            self._on_serving(models)

    # stopping

    def _take_signals(self) -> dict[signal.Signals, Any]:
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        before: dict[signal.Signals, Any] = {}
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, lambda *_: None)
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._wakeup, selectors.EVENT_READ, self._signalled)
        if self._lifeline is not None:
            self._selector.register(self._lifeline, selectors.EVENT_READ, self._abandoned)
        return before

    def _signalled(self) -> None:
        numbers = self._wakeup.recv(64)
        self._signals += sum(number in (signal.SIGTERM, signal.SIGINT) for number in numbers)
        if self._signals and self._phase is Phase.SERVING:
            self._settle()
        if self._signals > 1:
            log.warning("second signal: stopping at once")
            self._kill_all()
            self._enter(Phase.STOPPING, 0.0)

    def _abandoned(self) -> None:
        assert self._lifeline is not None
        if os.read(self._lifeline, 64) == b"":
            self._selector.unregister(self._lifeline)
            if self._phase is Phase.SERVING:
                self._settle()

    def _settle(self) -> None:
        server = self.settings.server
        log.info("draining: readiness answers 503", extra={"settle_seconds": server.shutdown_settle_secs})
        self.region.set_draining()
        self._signal("worker", signal.SIGUSR1)
        self._enter(Phase.SETTLING, server.shutdown_settle_secs)

    def _advance(self) -> None:
        """Move on to the next phase when this one is over."""
        late = self._deadline is not None and clock.monotonic() >= self._deadline
        if self._phase is Phase.SETTLING and late:
            log.info("draining: no new connections, waiting for running requests")
            for listener in self.listeners:
                listener.close()
            self._signal("worker", signal.SIGTERM)
            self._enter(Phase.FINISHING, self.settings.server.shutdown_grace_period_secs + MARGIN_SECONDS)
        elif self._phase is Phase.FINISHING and (late or not any(role.kind == "worker" for role in self._alive())):
            if late:
                self._kill_all("worker")
            self._signal("control", signal.SIGTERM)
            self._signal("engine", signal.SIGTERM)
            self._enter(Phase.STOPPING, STOP_SECONDS)
        elif self._phase is Phase.STOPPING and late:
            self._kill_all()
            self._deadline = None

    def _enter(self, phase: Phase, seconds: float) -> None:
        self._phase = phase
        self._deadline = clock.monotonic() + seconds
        for role in self.roles:
            if not self._restarts:
                role.restart_at = None

    def _alive(self) -> list[Role]:
        return [role for role in self.roles if role.child is not None]

    def _children(self, kind: str | None) -> Iterator[process.Child]:
        for role in self.roles:
            if role.child is not None and kind in (None, role.kind):
                yield role.child

    def _signal(self, kind: str, number: signal.Signals) -> None:
        for child in self._children(kind):
            process.send(child, number)

    def _kill_all(self, kind: str | None = None) -> None:
        for child in self._children(kind):
            self._killed = True
            process.send(child, signal.SIGKILL)

    def _close(self) -> None:
        for role in self._alive():
            assert role.child is not None
            process.reap(role.child)
            role.child = None
        for listener in self.listeners:
            listener.close()
        self._selector.close()
        self._wakeup.close()
        self._waker.close()
        self.region.close()


def servable(snapshot: FleetSnapshot) -> list[str]:
    """Ids of the models that can be asked for: their engines are ready, and take text or have their tokenizer here."""
    ready = [worker for worker in snapshot.workers if worker.status == "ready"]
    text = {name for worker in ready if worker.kind != "tokens" for name in worker.models}
    tokens = roles.served(worker for worker in ready if worker.kind == "tokens")
    return [
        model.id
        for model in snapshot.models
        if not (names := {model.id, *model.aliases}).isdisjoint(text)
        or (model.tokenizer_dir and not names.isdisjoint(tokens))
    ]
