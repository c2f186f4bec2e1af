"""Grammars of custom tools: what is in them, as it is and in a JSON string, by an engine's compiler and by ``re``."""

import json
import re

import pytest

from smg.constraints import lark, regular
from smg.constraints.language import Language, LanguageError, Name, Repeat, Row, Text, ebnf, ends
from smg.core.request import Constraint
from tests.constraints.oracle import allows

ARITHMETIC = r"""
// What OpenAI's guide shows, more or less.
start: expr
expr: term (SP ADD SP term)* -> add
    | term
term: factor (SP MUL SP factor)*
!factor: INT | "(" expr ")"
SP: " "
ADD: "+" | "-"      # two signs
MUL.2: /[*\/]/
%import common.INT
"""
WORDS = r"""
?start: "SELECT"i columns ["WHERE" condition] ";"?
columns: NAME ("," NAME)~0..2
condition: NAME "=" (ESCAPED_STRING | LETTER "-" /\d{2,3}/)
%import common (ESCAPED_STRING, WS)
%import common.CNAME -> NAME
LETTER: "a".."c"
%ignore WS
"""


def takes(language, text):
    """Whether the language has the text; inside a JSON string it must be the same."""
    plain = allows(Constraint("grammar", ebnf(language)), text)
    quoted = ebnf(Language({**language.rules}, language.start), json_string=True)
    assert allows(Constraint("grammar", quoted), json.dumps(text, ensure_ascii=False)[1:-1]) is plain
    return plain


class TestLark:
    @pytest.mark.parametrize("text", ["4", "4 + 4", "(1 - 22) * 3 / 4"])
    def test_what_is_in_a_grammar(self, text):
        assert takes(lark.parse(ARITHMETIC), text)

    @pytest.mark.parametrize("text", ["", "4+4", "4 + ", "(4", "four"])
    def test_what_is_not(self, text):
        assert not takes(lark.parse(ARITHMETIC), text)

    @pytest.mark.parametrize(
        "text",
        ["SELECT a", " select a,b , c;", 'Select x1 WHERE x1="say \\"hi\\""', "SELECT a\n WHERE a = b-123 ;"],
    )
    def test_ignored_text_may_stand_between_terminals(self, text):
        assert takes(lark.parse(WORDS), text)

    @pytest.mark.parametrize("text", ["SELECT a,b,c,d", "SELECT a WHERE a=d-12", "SELECT a where a=a-12"])
    def test_ranges_counts_and_case(self, text):
        assert not takes(lark.parse(WORDS), text)

    def test_quotes_backslashes_and_line_ends_inside_JSON(self):
        language = lark.parse(r'start: "say \"" /[^"]+/ "\"\n" "C:\\"')
        assert takes(language, 'say "a\\b\t東"\nC:\\')
        assert not takes(language, 'say "a')

    def test_rules_may_refer_to_themselves(self):
        language = lark.parse('start: "(" start? ")" | root\nroot: "x"')
        assert takes(language, "((x))")
        assert not takes(language, "((x)")

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "no rule 'start'"),
            ('begin: "a"', "no rule 'start'"),
            ("start: other", "line 1 of the grammar: there is no rule or terminal 'other'"),
            ('start: "a"\nstart: "b"', "line 2 of the grammar: 'start' is defined twice"),
            ('start: "a', "unexpected '\"'"),
            ('start: ("a"', "line 1"),
            ("start: start", "can never end"),
            ('start: "a" start', "can never end"),
            ('start: list{"a"}\nlist{x}: x', "line 1"),
            ('list{x}: x\nstart: "a"', "templates"),
            ("start: A\n%declare A", "%declare is not supported"),
            ("start: A\n%import python.A", "only 'common'"),
            ("start: A\n%import common.A", "no terminal common.A"),
            ('start: "ab".."c"', "a range goes from one character"),
            ('start: "a"~5000', "up to 1000 times"),
            (r"start: /(?=a)/", "regular expression"),
            (f'start: {"(" * 70}"a"{")" * 70}', "nested too deeply"),
            ('start: "\\ud800"', "no character"),
        ],
    )
    def test_what_cannot_be_read_says_why(self, text, words):
        with pytest.raises(LanguageError) as caught:
            lark.parse(text)
        assert words in str(caught.value)


PATTERNS = {
    r"^[a-z]+$": ["abc", "", "a1"],
    r"(?:ab|c)*d?": ["", "ababc", "cd", "dd"],
    r"\d{2,3}(\.\d+)?": ["12", "123.4", "1", "1234"],
    r"[^\s\d-]{2}": ["ab", "a b", "--", "a1"],
    r'"[^"\\]*(\\.[^"\\]*)*"': ['"a"', r'"a\"b"', '"a"b"'],
    r"[\w.]+@(?P<host>\w+)": ["a.b@c", "a@", "@c"],
    r"a.c": ["abc", "a\nc", "a東c"],
    r"x{2}": ["xx", "x", "xxx"],
    r"[]a]+": ["]a", "b"],
    r"[\]\-^\\]+": ["]-^\\", "a"],
    r"\x41\u00e9\.\/": ["Aé./", "Aé//"],
    r"(a|)b??": ["", "a", "ab", "b", "bb"],
    r"a{,3}": ["a{,3}", "aaa"],
}


class TestRegular:
    @pytest.mark.parametrize(("pattern", "texts"), PATTERNS.items())
    def test_it_says_what_python_says(self, pattern, texts):
        language = Language({"start": regular.parse(pattern)})
        # Python reads {,3} as a count; here, as in the engines, it is text.
        expected = re.compile(pattern.replace("{,", r"\{,"), re.ASCII)
        for text in texts:
            assert takes(language, text) is (expected.fullmatch(text) is not None), text

    def test_flags(self):
        assert takes(Language({"start": regular.parse("[a-f]x.", "is")}), "BX\n")
        assert not takes(Language({"start": regular.parse("[a-f]x.")}), "BX!")

    @pytest.mark.parametrize(
        "pattern",
        [
            "(a",
            "a)",
            "[a",
            "*a",
            "a|*",
            r"\1",
            r"\bx",
            "(?=a)",
            "(?<!a)",
            "a^b",
            "a$b",
            "a{5000}",
            "[b-a]",
            "\\",
            r"\xZZ",
        ],
    )
    def test_what_a_grammar_cannot_say_is_refused(self, pattern):
        with pytest.raises(LanguageError):
            regular.parse(pattern)

    @pytest.mark.parametrize("flags", ["x", "m", "q"])
    def test_flags_that_change_the_notation_are_refused(self, flags):
        with pytest.raises(LanguageError):
            regular.parse("a", flags)

    def test_deep_nesting_is_refused(self):
        with pytest.raises(LanguageError):
            regular.parse("(" * 100 + "a" + ")" * 100)


def test_a_language_that_ends():
    assert ends(Language({"start": Repeat(Name("start"), 0, 1)}))
    assert not ends(Language({"start": Row((Text("a"), Name("start")))}))
