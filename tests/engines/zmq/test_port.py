"""The sockets of one process: what happens at the same moment is heard in the order in which it happened."""

import time

import zmq

from smg.engines.zmq.address import parse
from smg.engines.zmq.port import Port
from tests.engines.zmq.test_zmq import free_url, until

NAME = b"\x00\x00"


def stand_still() -> None:
    """Block the event loop for long enough for the library's own thread."""
    time.sleep(0.1)


async def test_that_an_engine_has_gone_is_heard_before_its_successor_s_greeting(tmp_path, monkeypatch):
    """Heard the other way round it would end what has just been set up for the successor."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    context, address, heard = zmq.Context.instance(), parse(free_url()), []
    port = Port(context, address, 0, lambda _: None, lambda _: heard.append("greeting"), lambda: heard.append("end"))

    def engine() -> zmq.Socket[bytes]:
        made = context.socket(zmq.DEALER)
        made.setsockopt(zmq.IDENTITY, NAME)
        made.connect(address.input(0))
        made.send(b"hello")
        return made

    last = engine()
    await until(lambda: heard == ["greeting"])
    for _ in range(3):
        heard.clear()
        last.close(linger=0)
        stand_still()
        last = engine()
        stand_still()
        # Whoever sends looks for greetings at once.
        port.send(NAME, [b"", b""])
        await until(lambda: len(heard) == 2)
        assert heard == ["end", "greeting"]
    last.close(linger=0)
    port.close()
