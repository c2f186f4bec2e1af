"""What published chat templates use, and what happens when one fails."""

import datetime
import json
import re

import pytest
from jinja2.sandbox import SandboxedEnvironment

from smg.core.errors import GatewayError
from smg.text import template as template_module
from smg.text.template import compile_template
from smg.text.template_source import TemplateSource, find_template
from smg.text.tokenizer import TokenizerError


def render(source, **context):
    return compile_template(source).render(context)


def error_of(source, **context) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        render(source, **context)
    return caught.value


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ v | tojson }}", '{"b": "<é\'>", "a": [1, 2.0, null, true]}'),
        (
            "{{ v | tojson(indent=2) }}",
            json.dumps({"b": "<é'>", "a": [1, 2.0, None, True]}, indent=2, ensure_ascii=False),
        ),
        ("{{ v | tojson(ensure_ascii=True) }}", '{"b": "<\\u00e9\'>", "a": [1, 2.0, null, true]}'),
        ("{{ v | tojson(separators=(',', ':'), sort_keys=true) }}", '{"a":[1,2.0,null,true],"b":"<é\'>"}'),
        ("{{ ('{\"x\": 1}' | from_json).x }}", "1"),
        (
            "{% for i in [1, 2, 3, 4] %}{% if i == 2 %}{% continue %}{% endif %}"
            "{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "13",
        ),
        ("{% generation %}a{{ 1 }}{% endgeneration %}b", "a1b"),
        ("{{ nothing }}{% if nothing %}x{% endif %}|", "|"),
        ("{% set ns = namespace(n=0) %}{% for i in [1, 2] %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "3"),
        (
            "{% macro m(x) %}[{{ x }}{{ caller() if caller else '' }}]{% endmacro %}{% call m(1) %}!{% endcall %}",
            "[1!]",
        ),
        ("{% set x %}a{% endset %}{% filter upper %}{{ x }}{% endfilter %}", "A"),
        ("{{ 'a,b'.split(',')[-1] }}{{ [1, 2, 3][::-1] }}{{ 'x'.title() }}", "b[3, 2, 1]X"),
        ("{% set l = [] %}{{ l.append(1) or '' }}{{ l.append(2) or '' }}{{ l.pop() }}{{ l }}", "2[1]"),
        ("{% for k, w in v | items %}{{ loop.previtem is defined }}{{ k }}{% endfor %}", "FalsebTruea"),
        ("{% for k, w in v | dictsort %}{{ k }}{{ ',' if not loop.last }}{% endfor %}", "a,b"),
        ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
    ],
)
def test_FIX_2_2_features(source, expected):
    assert render(source, v={"b": "<é'>", "a": [1, 2.0, None, True]}) == expected


def test_FIX_2_2_strftime_now():
    assert render("{{ strftime_now('%Y') }}") == str(datetime.datetime.now().year)


def test_raise_exception_is_the_clients_error():
    error = error_of("{{ raise_exception('roles must alternate') }}")
    assert (error.code, error.status, error.message) == ("process_messages_failed", 400, "roles must alternate")


@pytest.mark.parametrize(
    "source",
    [
        "{{ x.y.z }}",
        "{{ 1 / 0 }}",
        "{{ 'a' + 1 }}",
        "{% include 'x' %}",
        "{{ ''.__class__.__mro__ }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 'a' * 1000000000 }}",
        "{{ 10 ** 1000000 }}",
        "{% for i in range(100000000) %}{% endfor %}",
        "{% set x = 'a' * 1000000 %}{% for i in range(20) %}{{ x }}{% endfor %}",
    ],
)
def test_templates_that_fail_or_run_away_are_the_clients_error(source):
    error = error_of(source)
    assert (error.code, error.status) == ("process_messages_failed", 400)
    assert "Traceback" not in error.message


def test_slow_templates_are_stopped(monkeypatch):
    monkeypatch.setattr(template_module, "MAX_SECONDS", 0.0)
    assert "longer than" in error_of("{% for i in range(9) %}{{ i }}{% endfor %}").message


def test_a_template_that_does_not_compile_is_reported():
    with pytest.raises(GatewayError) as caught:
        compile_template("{% if %}")
    assert (caught.value.code, caught.value.status) == ("process_messages_failed", 400)


def test_compiled_once_per_content():
    assert compile_template("{{ 1 }}" + "") is compile_template("{{ 1 }}")


def test_FIX_2_1_source_precedence_and_files_read_as_they_are(tmp_path):
    config = {"chat_template": "config"}
    assert find_template(tmp_path, config) == TemplateSource("config")
    (tmp_path / "other.jinja").write_text("other")
    assert find_template(tmp_path, config) == TemplateSource("other")
    (tmp_path / "chat_template.jinja").write_text("a\\n b\n")
    assert find_template(tmp_path, config) == TemplateSource("a\\n b\n")
    (tmp_path / "chat_template.json").write_text('{"chat_template": "object"}')
    assert find_template(tmp_path, config) == TemplateSource("object")
    (tmp_path / "chat_template.json").write_text('"bare"')
    assert find_template(tmp_path, config) == TemplateSource("bare")
    (tmp_path / "mine").write_text("mine")
    assert find_template(tmp_path, config, str(tmp_path / "mine")) == TemplateSource("mine")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, TemplateSource()),
        ([{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}], TemplateSource("d", "t")),
        ([{"name": "rag", "template": "r"}], TemplateSource("r")),
        ([], TemplateSource()),
    ],
)
def test_FIX_1_3_list_form_of_the_configuration(tmp_path, value, expected):
    assert find_template(tmp_path, {"chat_template": value}) == expected


@pytest.mark.parametrize("text", ["{", "{}", "3"])
def test_template_files_without_a_template_are_refused(tmp_path, text):
    (tmp_path / "chat_template.json").write_text(text)
    with pytest.raises(TokenizerError, match="chat template"):
        find_template(tmp_path, {})


def test_a_missing_override_is_refused(tmp_path):
    with pytest.raises(TokenizerError, match="cannot be read"):
        find_template(tmp_path, {}, str(tmp_path / "absent.jinja"))


class TestItemsAndAttributesOfDicts:
    """They are Jinja's sandbox's, whatever a dict has by that name."""

    @pytest.mark.parametrize("name", ["role", "gone", "items", "get", "__class__", "copy", "0"])
    @pytest.mark.parametrize(
        "form", ["{{{{ m['{}'] is defined }}}}", "{{{{ m['{}'] }}}}", "{{{{ (m|attr('{}')) is defined }}}}"]
    )
    def test_an_item_is_what_jinja_makes_of_it(self, name, form):
        self.check(form.format(name))

    @pytest.mark.parametrize("name", ["role", "gone", "items", "get", "__class__", "copy"])
    def test_an_attribute_is_what_jinja_makes_of_it(self, name):
        self.check(f"{{{{ m.{name} is defined }}}} {{{{ m.{name} is callable }}}} {{{{ m.{name} is string }}}}")

    def check(self, source):
        context = {"m": {"role": "user", "items": "own", "get": 1}}
        plain = SandboxedEnvironment().from_string(source)
        shown = re.sub(" at 0x[0-9a-f]+", "", plain.render(context))
        assert re.sub(" at 0x[0-9a-f]+", "", render(source, **context)) == shown
