"""Flags over environment over YAML over defaults; all mistakes in one report; secrets never shown."""

import pytest

from smg.config import Settings, SettingsError, load
from smg.config.fields import fields
from smg.config.load import parser
from smg.config.settings import ModelSettings
from smg.config.tenants import TenantLimit, tenant_model_limit


def test_defaults():
    assert load([], {}) == Settings()


def test_precedence(tmp_path):
    config = tmp_path / "smg.yaml"
    config.write_text("server: {host: 1.1.1.1, port: 1, workers: 3}\nsecurity: {api_key: [from-file]}\n")
    settings = load(["--config", str(config), "--port", "3"], {"SMG_PORT": "2", "SMG_HOST": "2.2.2.2"})
    assert (settings.server.port, settings.server.host, settings.server.workers) == (3, "2.2.2.2", 3)
    assert settings.security.api_key == ("from-file",)


def test_lists():
    settings = load(
        ["--worker-urls", "grpc://a:1", "grpc://b:2", "--worker-urls", "grpc://c:3,grpc://d:4", "--api-key", "x,y"], {}
    )
    assert settings.fleet.worker_urls == ("grpc://a:1", "grpc://b:2", "grpc://c:3", "grpc://d:4")
    assert settings.security.api_key == ("x,y",)
    assert load([], {"SMG_EMBEDDED_ARGS": "--slots 4"}).embedded.embedded_args == ("--slots", "4")


def test_every_problem_is_reported_at_once():
    with pytest.raises(SettingsError) as caught:
        load(["--port", "70000", "--policy", "best", "--worker-urls", "nonsense", "--tls-cert-path", "/nowhere"], {})
    text = str(caught.value)
    assert len(caught.value.problems) == 5
    for word in ("--port", "at most 65535", "--policy", "round_robin", "nonsense", "--tls-key-path", "/nowhere"):
        assert word in text


def test_secrets_are_never_printed(capsys):
    with pytest.raises(SettingsError) as caught:
        load(["--api-key", " secret-key"], {})
    assert "secret-key" not in str(caught.value)
    with pytest.raises(SystemExit):
        load(["--help"], {"SMG_API_KEY": "secret-key"})
    assert "secret-key" not in capsys.readouterr().out


@pytest.mark.parametrize("text", ["server: [1]", "nonsense: {a: 1}", "server: {hots: x}", "{", "server: {port: x}"])
def test_bad_files_are_refused(tmp_path, text):
    config = tmp_path / "smg.yaml"
    config.write_text(text)
    with pytest.raises(SettingsError):
        load(["--config", str(config)], {})


def test_flags_are_unique_and_explained():
    listed = [flag for field in fields() for flag in (field.flag, *field.aliases)]
    assert len(listed) == len(set(listed))
    assert all(field.text.endswith(".") for field in fields())
    assert parser().format_help()


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--rate-limit-tokens-per-second", "-1"),
        ("--rate-limit-tokens-per-second", "0.5"),
        ("--max-concurrent-requests", "-2"),
        ("--queue-size", "-1"),
        ("--queue-timeout-secs", "0"),
    ],
)
def test_LM_01_limits_that_make_no_sense_fail_at_start_by_name(flag, value):
    with pytest.raises(SettingsError, match=flag):
        load([flag, value], {})


@pytest.mark.parametrize(
    "url",
    [
        "grpc://a:1",
        "http://a:1",
        "https://a/base",
        "http://a:1@3",
        "ipc:///run/x",
        "zmq://127.0.0.1:1",
        "a:1",
        "[::1]:2",
    ],
)
def test_addresses_of_engines(url):
    assert load(["--worker-urls", url], {}).fleet.worker_urls == (url,)


@pytest.mark.parametrize("url", ["ftp://a:1", "a", "http://", "a:b", "a:1/x"])
def test_what_is_no_address_of_an_engine(url):
    with pytest.raises(SettingsError, match="not an engine address"):
        load(["--worker-urls", url], {})


def test_keys_of_engines_are_for_engines_there_are():
    flags = ["--worker-urls", "http://a:1@0", "http://a:1@1"]
    assert load([*flags, "--worker-api-key", "http://a:1=k"], {}).fleet.worker_api_key == ("http://a:1=k",)
    with pytest.raises(SettingsError, match="--worker-api-key") as caught:
        load([*flags, "--worker-api-key", "http://b:1=secret"], {})
    assert "secret" not in str(caught.value)


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path):
    config = tmp_path / "smg.yaml"
    config.write_text("server: {prot: 5, port: x}\nfoo: 1\nrouting: 3\nfleet:\n")
    with pytest.raises(SettingsError) as caught:
        load(["--config", str(config)], {})
    first, *others = str(caught.value).splitlines()
    assert first.startswith(f"--config: {config}: there is no group 'foo' (there are: admission, ")
    assert others == [
        f"--config: {config}: group 'routing': expected a mapping of settings",
        "server.prot: Object contains unknown field 'prot'",
        "server.port: Expected 'int', got 'str'",
    ]


class TestModels:
    """Settings of single models, which only a file can give."""

    @staticmethod
    def load(tmp_path, text):
        config = tmp_path / "smg.yaml"
        config.write_text(text)
        return load(["--config", str(config)], {})

    def test_win_over_those_of_all_models_one_by_one(self, tmp_path):
        text = (
            "model: {reasoning_parser: base, tool_call_parser: json, marker_match: text}\n"
            "models:\n  org/a: {reasoning_parser: qwen3}\n  b:"
        )
        settings = self.load(tmp_path, text)
        own = settings.of_model("org/a")
        assert (own.reasoning_parser, own.tool_call_parser, own.marker_match) == ("qwen3", "json", "text")
        assert settings.of_model("b") == settings.of_model("c") == settings.model
        # A default that is a value would win over what was said of all models.
        assert ModelSettings() == ModelSettings(*[None] * len(ModelSettings.__struct_fields__))
        # An alias will do; the first name that has settings decides.
        assert settings.of_model("x", "org/a") == own

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("models: {a: {reasoning: x}}", "models.a: "),
            ("models: {a: {unknown_tool_policy: maybe}}", "models.a: "),
            (
                "models: {a: {tokenizer_path: /nowhere/at/all}}",
                "models.a.tokenizer-path: '/nowhere/at/all' does not exist",
            ),
            ("models: {a: 3}", "models.a: "),
            ("models: [a]", "expected a mapping"),
        ],
    )
    def test_mistakes_name_the_model(self, tmp_path, text, problem):
        with pytest.raises(SettingsError, match=problem):
            self.load(tmp_path, text)

    def test_may_name_a_tokenizer_on_the_hub(self, tmp_path):
        assert self.load(tmp_path, "models: {a: {tokenizer_path: org/a@v1}}").of_model("a").tokenizer_path == "org/a@v1"


@pytest.mark.parametrize("name", ["SMG_API_KEY", "SMG_ADMIN_KEY"])
@pytest.mark.parametrize("value", ["", " "])
def test_a_key_that_is_set_and_empty_opens_nothing(name, value):
    """``SMG_API_KEY="$(cat api.key)"`` without the file."""
    with pytest.raises(SettingsError, match=f"{name} is set and empty"):
        load([], {name: value})
    assert load(["--api-key", "a", "--admin-key", "b"], {name: value}).security.api_key == ("a",)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--tenant-api-key", "acme"], "--tenant-api-key: the key of 'acme' must not be empty"),
        (["--tenant-api-key", "ac me:k"], "--tenant-api-key: not TENANT:KEY"),
        (["--tenant-api-key", "key-01234567:k"], "--tenant-api-key: not TENANT:KEY"),
        (["--tenant-api-key", "a:k", "--tenant-api-key", "b:k"], "the key of 'b' is somebody else's too"),
        (["--api-key", "k", "--tenant-api-key", "b:k"], "the key of 'b' is somebody else's too"),
        (["--tenant-limit", "acme=6"], "--tenant-limit: 'acme=6' is not TENANT=REQUESTS/TOKENS"),
        (["--tenant-limit", "acme=-1/0"], "is not TENANT=REQUESTS/TOKENS"),
        (["--tenant-model-limit", "acme=6/0"], "--tenant-model-limit: 'acme=6/0' is not TENANT@MODEL=REQUESTS/TOKENS"),
        (["--tenant-model-limit", "acme@*=6/0"], "is not TENANT@MODEL=REQUESTS/TOKENS"),
        (["--tenant-model-limit", "a b@llama=6/0"], "is not TENANT@MODEL=REQUESTS/TOKENS"),
    ],
)
def test_tenants_that_are_not_well_written_are_refused(flags, problem):
    with pytest.raises(SettingsError) as caught:
        load(flags, {})
    assert any(problem in line for line in caught.value.problems)


def test_tenants_are_named_by_their_key_or_otherwise():
    limits = ["acme=60/1000", "key-0123abcd=0/5", "ip:10.0.0.1=1/0", "header:blue=2/0"]
    made = load(["--tenant-api-key", "acme:k", *(word for each in limits for word in ("--tenant-limit", each))], {})
    assert made.admission.tenant_limit == tuple(limits)


def test_a_rule_for_a_model_names_a_tenant_or_each():
    assert tenant_model_limit("acme@org/llama-3:8b=60/0") == ("acme", ("org/llama-3:8b", TenantLimit(60, 0)))
    assert tenant_model_limit("*@llama-*=0/5") == ("*", ("llama-*", TenantLimit(0, 5)))
    assert tenant_model_limit("header:bob@example.org@llama=1/2") == ("header:bob@example.org", ("llama", (1, 2)))
