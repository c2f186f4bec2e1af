"""Log lines: their form, their fields, and that nothing can forge one."""

import io
import json
import logging
import re

import pytest

from smg.config.settings import TelemetrySettings
from smg.core.context import Principal, RequestContext
from smg.telemetry import logs


@pytest.fixture
def lines():
    """Configure logging into a buffer; ``lines(json=…, level=…)`` returns a reader of what has been logged."""
    root = logging.getLogger()
    kept = (root.handlers[:], root.level, logging.getLogger("smg").level)
    buffer = io.StringIO()

    def configure(*, as_json: bool = False, level: str = "info"):
        logs.configure(TelemetrySettings(log_level=level, log_json=as_json), buffer)
        return lambda: buffer.getvalue().splitlines()

    yield configure
    root.handlers[:], root.level = kept[0], kept[1]
    logging.getLogger("smg").setLevel(kept[2])


def test_text_lines_have_time_level_logger_and_fields(lines):
    read = lines()
    logging.getLogger("smg.fleet").warning("engine %s is away", "e1", extra={"worker": "grpc://a b", "tries": 3})
    (line,) = read()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} WARN  smg\.fleet \[\d+\] engine e1 is away ", line)
    assert line.endswith(' worker="grpc://a b" tries=3')


def test_json_lines_are_one_object_each(lines):
    read = lines(as_json=True)
    logging.getLogger("smg.x").error("bad\nnews", extra={"code": "é", "odd": {1, 2} and object})
    (line,) = read()
    record = json.loads(line)
    assert (record["level"], record["logger"], record["message"], record["code"]) == (
        "ERROR",
        "smg.x",
        "bad\nnews",
        "é",
    )
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", record["time"])
    assert record["source"].startswith("test_logs.py:")


def test_text_cannot_forge_a_line(lines):
    read = lines()
    logging.getLogger("smg").info("name %s", "x\n2026-01-01 fake", extra={"field": "y\nfake"})
    (line,) = read()
    assert "x\\n2026" in line
    assert 'field="y\\nfake"' in line


def test_an_extra_field_cannot_replace_a_standard_one(lines):
    read = lines(as_json=True)
    logging.getLogger("smg").info("hello", extra={"level": "FATAL", "time": "never"})
    (line,) = read()
    assert json.loads(line)["level"] == "INFO"


def test_records_of_a_request_carry_its_id(lines):
    read = lines()
    token = logs.current_request.set("req-7")
    logging.getLogger("smg").info("inside")
    logs.current_request.reset(token)
    logging.getLogger("smg").info("outside")
    inside, outside = read()
    assert inside.endswith("inside request_id=req-7")
    assert "request_id" not in outside


def test_libraries_log_from_warning_and_we_from_the_level(lines):
    read = lines(level="debug")
    logging.getLogger("somelib").info("no")
    logging.getLogger("somelib").warning("yes")
    logging.getLogger("smg.core").debug("yes")
    assert len(read()) == 2


def test_exceptions_are_logged_whole(lines):
    read = lines(as_json=True)
    try:
        raise ValueError("why")
    except ValueError:
        logging.getLogger("smg").exception("failed")
    (line,) = read()
    assert "ValueError: why" in json.loads(line)["exception"]


@pytest.mark.parametrize(
    ("path", "status", "level"),
    [
        ("/v1/models", 200, "INFO"),
        ("/v1/models", 404, "WARN"),
        ("/v1/models", 499, "WARN"),
        ("/v1/models", 502, "ERROR"),
        ("/readiness", 503, "DEBUG"),
        ("/readiness", 200, "DEBUG"),
    ],
)
@pytest.mark.parametrize("failed", [True, False])
def test_an_access_record_per_request(lines, path, status, level, failed):
    read = lines(as_json=True, level="debug")
    ctx = RequestContext("req-1", principal=Principal(name="key-ab"))
    ctx.notes.update(model="m", worker="w", attempts="2", secret="no")
    if failed:
        ctx.notes.update(error="worker_failed", param="messages[0]")
        # A stream that failed after its status had been sent.
        level = "WARN" if level == "INFO" else level
    logs.access_record(ctx, "GET", path, status, 0.0123456, "127.0.0.1")
    (line,) = read()
    record = json.loads(line)
    del record["time"], record["pid"], record["source"]
    assert record == {
        "level": level,
        "logger": "smg.access",
        "message": "request",
        "request_id": "req-1",
        "method": "GET",
        "path": path,
        "status": status,
        "duration_ms": 12.346,
        "client": "127.0.0.1",
        "principal": "key-ab",
        "model": "m",
        "worker": "w",
        "attempts": "2",
        **({"error": "worker_failed", "param": "messages[0]"} if failed else {}),
    }


def test_probes_are_not_logged_at_info(lines):
    read = lines()
    logs.access_record(RequestContext("r"), "GET", "/metrics", 200, 0.1)
    assert read() == []


def test_a_library_is_made_to_follow_the_root(lines):
    read = lines()
    library = logging.getLogger("chatty")
    library.addHandler(logging.StreamHandler(io.StringIO()))
    library.setLevel(logging.DEBUG)
    library.propagate = False
    logs.quiet_library("chatty")
    library.info("no")
    library.warning("yes")
    assert len(read()) == 1
