from __future__ import annotations

import jinja2
import pytest

from foveola.exchange import Damaged
from foveola.intake.prompt import PromptFormat
from foveola.intake.template import compile_template
from tests.intake.models import TEMPLATE, model, tokenizer

MESSAGES = [{"role": "user", "a": "1"}, {"role": "assistant", "a": "2"}]


def rendered(template: str) -> str:
    return compile_template(template).render(messages=MESSAGES)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (
            "{% for m in messages %}{{ loop.index0 ~ ':' ~ m.a + 'x' }}{{ ',' if not loop.last }}{% endfor %}",
            "0:1x,1:2x",
        ),
        ("{% for x in [] %}a{% else %}none{% endfor %}", "none"),
        ("{% for m in messages if m.a == '2' %}{{ loop.length }}{{ m.role }}{% endfor %}", "1assistant"),
        ("{% for key, value in {'a': 1}.items() %}{{ key }}{{ value * 3 }}{% endfor %}", "a3"),
        ("{% macro twice(x) %}{{ x ~ x }}{% endmacro %}{{ twice('ab') }}{{ [1] + [2] }}", "abab[1, 2]"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{% generation %}{{ 1 ~ 2 }}{% endgeneration %}", "12"),
    ],
)
def test_what_templates_do_they_still_do(template: str, text: str) -> None:
    assert rendered(template) == text


LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
BLOCKS = (
    "{% for i in range(9999) %}{% block x scoped %}{% for j in range(99999) %}{% endfor %}{% endblock %}{% endfor %}"
)
GROWS = "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x OP n.x %}{% endfor %}"
CALLS = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (LOOPS, "its loops and calls take more than 300000 steps"),
        (BLOCKS, "its loops and calls take more than 300000 steps"),
        ("{{ 'a' * 10**8 * 9 }}", "it computes * beyond what a prompt needs"),
        ("{{ 9**9**9 }}", "it computes ** beyond what a prompt needs"),
        (GROWS.replace("OP", "+"), "it computes + beyond what a prompt needs"),
        (GROWS.replace("OP", "~"), "it joins texts beyond what a prompt needs"),
    ],
)
def test_a_template_cannot_go_on_for_ever(template: str, says: str) -> None:
    with pytest.raises(jinja2.TemplateError) as caught:
        rendered(template)
    assert str(caught.value) == says


def test_calls_of_a_template_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foveola.intake.template.MAX_STEPS", 1000)
    with pytest.raises(jinja2.TemplateError, match="its loops and calls take more than 1000 steps"):
        rendered(CALLS)


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "loops that call themselves are not run"),
        ("{% if True %}" * 2000 + "{% endif %}" * 2000, "RecursionError"),
    ],
)
def test_what_is_not_compiled(template: str, says: str) -> None:
    with pytest.raises(Damaged) as caught:
        compile_template(template)
    assert caught.value.message == f"model.json: chat_template is no valid template: {says}"


@pytest.mark.parametrize(
    ("template", "ends"),
    [
        ("{{ 1 / 0 }}", "it ends in ZeroDivisionError"),
        ("{{ range(10**7) | list }}", "it ends in OverflowError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "it ends in RecursionError"),
        ("{{ messages + 1 }}", "it ends in TypeError"),
        ("{% include 'x' %}", "it ends in TypeError"),
        ("{{ lipsum(n=9) }}", "'lipsum' is undefined"),
    ],
)
def test_whatever_happens_in_a_template_is_a_refusal(template: str, ends: str) -> None:
    with pytest.raises(Damaged) as caught:
        PromptFormat(model(chat_template=template + TEMPLATE), tokenizer())
    assert caught.value.message.endswith(f"The model's chat template refuses these turns: {ends}")
