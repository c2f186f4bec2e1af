"""Texts on which the native encoder must agree with the library before it is used."""

_LINES = (
    "Hello, world! It's 3.14 or 31415926 -- isn't it? WE'LL SEE, they'd've said.",
    "  leading, trailing  \n\n \t tabs\tand   runs \r\n of\r blanks \n  \n x\u00a0y\u3000z",
    "def f(x: int) -> str:\n    return f'{x!r:>8}'  # comment\n\n\nclass HTTPServer2Go(object):\n\tpass\n",
    '{"key": [1, 22, 333, 4444, null], "url": "https://example.org/a_b/c?d=e&f=%20#g"}',
    "Zażółć gęślą jaźń, Straße, naïve façade, ÀÉÎÕÜ, ǅungla, ŉ, İstanbul",
    "Быстрая лиса и ΓΡΗΓΟΡΗ αλεπού; שלום עולם, مرحبا بالعالم, हिन्दी में पाठ, ภาษาไทย",
    "日本語のテキスト、カタカナ、漢字。中文文本混排English和数字123456。한국어 문장입니다.",
    "😀👩‍👩‍👧‍👦🏳️‍🌈 emoji\ufe0f ☃ ① ½ Ⅷ ٣٤ ௧ x² №",
    "e\u0301 combining A\u030a, \u1100\u1161 jamo, \ufb01 \uff21",
    "'s 'S 't 'RE 've 'm 'lL 'd 'x ''s a's b'T C'LL",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "camelCaseAndPascalCase XMLHttpRequest iPhone 日A日a Aa日 ABCd ABC日 \u0300a \u0300A .\u0300 /path/\n//\r\n",
    "\x00\x01\x7f\u200b\u200d\ufeff control\u0085 and \ue000 private",
)

PROBES: tuple[str, ...] = ("", " ", "\n", "'", *_LINES, "\n".join(_LINES), " ".join(reversed(_LINES)))
