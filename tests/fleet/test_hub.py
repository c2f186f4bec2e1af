"""Tokenizers by their name on the hub: a hub over HTTP on this machine, with the real client library."""

import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

from smg.config.hub_names import HubName, hub_name
from smg.config.load import SettingsError, load
from smg.config.settings import ModelSettings
from smg.engine_server.mock import MockEngine
from smg.engines.driver import GrpcDriver
from smg.engines.transport.grpcio import GrpcioTransport
from smg.engines.vllm.adapter import VllmAdapter
from smg.fleet import hub
from smg.fleet.hub import HubError, obtain
from smg.fleet.tokenizer_source import TokenizerError, digest, find
from tests.fleet.test_tokenizer_source import NO_BUNDLE

COMMITS = {"main": "a" * 40, "v1": "b" * 40}
FILES = {
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b'{"a": 1}',
    "config.json": b"{}",
    "chat_template.jinja": b"hi",
    "model.safetensors": b"weights",
    "README.md": b"read me",
    "onnx/tokenizer.json": b"another",
    "original/tokenizer.model": b"original",
}


class Hub:
    """Repositories by name; ``asked`` are the paths of all requests, ``tokens`` the keys they came with."""

    def __init__(self) -> None:
        self.repositories = {"org/name": dict(FILES), "org/empty": {"README.md": b"x"}, "org/secret": dict(FILES)}
        self.asked: list[str] = []
        self.tokens: set[str | None] = set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self, True)

            def do_HEAD(self) -> None:
                outer.answer(self, False)

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler, body: bool) -> None:
        path = urlsplit(request.path).path
        self.asked.append(path)
        token = request.headers.get("authorization")
        self.tokens.add(token)
        status, headers, content = self._find(path, token)
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        request.send_header("content-length", str(len(content)))
        request.end_headers()
        if body:
            request.wfile.write(content)

    def _find(self, path: str, token: str | None) -> tuple[int, dict[str, str], bytes]:
        api = path.startswith("/api/models/")
        parts = path.removeprefix("/api/models/").strip("/").split("/")
        name = "/".join(parts[:2])
        if name not in self.repositories or (name == "org/secret" and token != "Bearer let-me-in"):
            return 401, {"x-error-code": "RepoNotFound"}, b""
        files = self.repositories[name]
        # /api/models/ORG/NAME[/revision|tree/REVISION], /ORG/NAME/resolve/REVISION/FILE
        revision = parts[3] if len(parts) > 3 else "main"
        commit = COMMITS.get(revision, revision if revision in COMMITS.values() else None)
        if commit is None:
            return 404, {"x-error-code": "RevisionNotFound"}, b""
        if not api:
            return self._file(commit, files, "/".join(parts[4:]))
        if len(parts) > 2 and parts[2] == "tree":
            tree = [
                {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for path, data in files.items()
            ]
            return 200, {"content-type": "application/json"}, json.dumps(tree).encode()
        info = {
            "id": name,
            "sha": commit,
            "siblings": [{"rfilename": path, "size": len(data)} for path, data in files.items()],
        }
        return 200, {"content-type": "application/json"}, json.dumps(info).encode()

    def _file(self, commit: str, files: dict[str, bytes], path: str) -> tuple[int, dict[str, str], bytes]:
        if path not in files:
            return 404, {"x-error-code": "EntryNotFound"}, b""
        content = files[path] + commit[:1].encode() if path == "chat_template.jinja" else files[path]
        etag = hashlib.sha1(content).hexdigest()
        return 200, {"x-repo-commit": commit, "etag": f'"{etag}"'}, content


@pytest.fixture
def server(tmp_path, monkeypatch):
    server = Hub()
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in ("HF_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    yield server
    server.server.shutdown()
    server.server.server_close()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("org/name", HubName("org/name")),
        ("Qwen/Qwen2.5-7B", HubName("Qwen/Qwen2.5-7B")),
        ("org/name@v1.2", HubName("org/name", "v1.2")),
        ("org/name@refs/pr/3", HubName("org/name", "refs/pr/3")),
        *((text, None) for text in ("llama", "/org/name", "./org/name", "a/b/c", "some/tokenizer.json", "org/", "")),
    ],
)
def test_names(text, name):
    assert hub_name(text) == name


def test_what_is_on_disk_is_a_path(tmp_path, monkeypatch):
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert hub_name("org/name") is None


def test_only_tokenizer_files_are_downloaded_and_only_once(server, tmp_path):
    directory = obtain(HubName("org/name"))
    found = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    assert found == {
        *("tokenizer.json", "tokenizer_config.json", "config.json", "chat_template.jinja"),
        "original/tokenizer.model",
    }
    assert directory.is_relative_to(tmp_path / "hf" / "hub" / "models--org--name" / "snapshots")
    asked = len(server.asked)
    assert obtain(HubName("org/name")) == directory
    assert len(server.asked) == asked


def test_a_revision_has_its_own_files(server):
    main, pinned = obtain(HubName("org/name")), obtain(HubName("org/name", "v1"))
    assert (main / "chat_template.jinja").read_text() == "hia"
    assert (pinned / "chat_template.jinja").read_text() == "hib"
    assert obtain(HubName("org/name", "b" * 40)) == pinned


def test_offline_takes_what_the_cache_has(server, monkeypatch):
    directory = obtain(HubName("org/name"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    server.asked.clear()
    assert obtain(HubName("org/name")) == directory
    with pytest.raises(HubError, match="org/empty is not in the hub's cache, and HF_HUB_OFFLINE is set"):
        obtain(HubName("org/empty"))
    assert server.asked == []


def test_the_token_opens_what_is_not_public(server, monkeypatch):
    with pytest.raises(HubError, match="the hub has no org/secret, or HF_TOKEN may not see it"):
        obtain(HubName("org/secret"))
    monkeypatch.setenv("HF_TOKEN", "let-me-in")
    assert (obtain(HubName("org/secret")) / "tokenizer.json").is_file()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (HubName("org/nothing"), "the hub has no org/nothing"),
        (HubName("org/name", "v9"), "org/name has no revision v9"),
        (HubName("org/empty"), "org/empty has no tokenizer files"),
    ],
)
def test_what_is_not_there(server, name, message):
    with pytest.raises(HubError, match=message):
        obtain(name)


def test_files_of_the_models_own_code_are_the_last_resort(server):
    server.repositories["org/name"] = {"original/tokenizer.model": b"x", "README.md": b"x"}
    assert obtain(HubName("org/name")).name == "original"


def test_too_much_is_not_downloaded(server, monkeypatch):
    monkeypatch.setattr(hub, "MAX_BYTES", 10)
    with pytest.raises(HubError, match="larger than 10 bytes"):
        obtain(HubName("org/name"))
    assert not any("/resolve/" in path for path in server.asked)


def test_a_hub_that_cannot_be_reached(server, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HubError, match="org/name cannot be downloaded"):
        obtain(HubName("org/name"))


def test_without_the_client_library_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(HubError, match=r"pip install huggingface-hub"):
        obtain(HubName("org/name"))


async def test_the_tokenizers_path_is_asked_first_the_models_after_the_engine(server, tmp_path, told):
    async with MockEngine() as engine:
        driver = GrpcDriver(engine.url, VllmAdapter(), GrpcioTransport(engine.url))
        bundle = await find(ModelSettings(model_path="org/name"), driver, told(), tmp_path / "cache")
        assert server.asked == []
        named = await find(ModelSettings(tokenizer_path="org/name"), driver, told(), tmp_path / "cache")
        assert named.key == digest(named.directory) != bundle.key
        engine.script = NO_BUNDLE
        assert await find(ModelSettings(model_path="org/name"), driver, told(), tmp_path / "cache") == named
        with pytest.raises(TokenizerError, match=r"no path.*--model-path: the hub has no org/nothing"):
            await find(ModelSettings(model_path="org/nothing"), driver, told(), tmp_path / "cache")
        with pytest.raises(TokenizerError, match="--tokenizer-path: the hub has no org/nothing"):
            await find(ModelSettings(tokenizer_path="org/nothing"), driver, told(), tmp_path / "cache")
        await driver.close()


def test_settings_take_hub_names_where_a_path_must_exist(tmp_path):
    settings = load(["--tokenizer-path", "org/name@v1", "--model-path", "org/name"], {})
    assert settings.model.tokenizer_path == "org/name@v1"
    with pytest.raises(SettingsError, match=r"--tokenizer-path: './org/name' does not exist"):
        load(["--tokenizer-path", "./org/name"], {})
