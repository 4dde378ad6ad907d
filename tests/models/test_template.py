"""Chat templates are rendered as transformers renders them, in a process that ends whatever they do."""

from __future__ import annotations

from typing import Any

import pytest

from reodsl.diagnostics import Problem
from reodsl.ir.model import Prompt
from runners.machine.process import ProcessDied
from runners.models import template
from runners.models.template import TemplateError, render_template
from runners.models.tokenizer import word_tokenizer
from runners.rollout.prompts import prompt_tokens

TURNS: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief.\n"},
    {"role": "user", "content": "What is 1 + 1? {{ 7 }} 🙂 <b>"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"function": {"name": "add", "arguments": {"x": None}}}],
    },
    {"role": "tool", "content": "2"},
]
QWEN = """{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}{%- endfor %}
{%- for message in messages %}{{- '<|im_start|>' + message.role + message.content + '<|im_end|>' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant' }}{%- endif %}"""
TEMPLATES = {
    "qwen": QWEN,
    "json": "{{ messages | tojson(indent=2) }}{{ messages | tojson }}{{ tools or [] }}",
    "marks": "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}|{{ unk_token }}|{{ documents }}|{{ add_generation_prompt }}",
    "generation": "{% set x = 1 %}{% for m in messages %}{% generation %}{% set x = 2 %}{{ m.content }}{% endgeneration %}"
    "{{ x }}{% endfor %}",
    "loops": "{% for m in messages %}{% if loop.index == 2 %}{% continue %}{% endif %}{% if loop.last %}{% break %}"
    "{% endif %}\n  {% set n = namespace(a=m.role) %}\n{{ n.a }}\n{% endfor %}",
    "time": "{{ strftime_now('%Y') }}{{ 'a' if messages[0].content is string }}{{ messages[9] }}",
}
FAILING = {
    "raised": ("{{ raise_exception('no system message') }}", "no system message"),
    "syntax": ("{% for", "end of template"),
    "attribute": ("{{ messages[9].content.x }}", "no element 9"),
    "escape": ("{{ ''.__class__.__mro__ }}{{ messages.append(1) }}", "unsafe"),
}


def tokenizer_with(text: Any) -> Any:
    tokenizer = word_tokenizer(["What", "is", "1", "+", "1?", "x"])
    tokenizer.chat_template = text
    return tokenizer


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_rendered_to_the_letter(name: str) -> None:
    tokenizer = tokenizer_with(TEMPLATES[name])
    wanted = tokenizer.apply_chat_template(TURNS, add_generation_prompt=True, tokenize=False)
    assert render_template(tokenizer, TURNS) == wanted


def test_of_several_templates_the_default_is_rendered() -> None:
    tokenizer = tokenizer_with({"default": "plain", "tool_use": "tools"})
    assert render_template(tokenizer, TURNS) == "plain"
    with pytest.raises(TemplateError, match="no default"):
        render_template(tokenizer_with({"a": "a", "b": "b"}), TURNS)


@pytest.mark.parametrize("name", FAILING)
def test_what_a_template_raises_is_told(name: str) -> None:
    text, words = FAILING[name]
    with pytest.raises(TemplateError, match=words):
        render_template(tokenizer_with(text), TURNS)


LOOP = "{% for i in range(99999) %}" * 4 + "{% endfor %}" * 4
FULL = "{% set n = namespace(x='a') %}{% for i in range(33) %}{% set n.x = n.x ~ n.x %}{% endfor %}"
AROUND = {
    "another question": (
        "{% if '1 + 1' not in messages[-1].content %}" + LOOP + "{% endif %}",
        "does not end within",
    ),
    "the time": ("{% if strftime_now('%Y') != '%Y' %}" + LOOP + "{% endif %}", "does not end within"),
    "memory": ("{% if '1 + 1' not in messages[-1].content %}" + FULL + "{% endif %}", "1,024 MiB of memory"),
    "a long template": ("x" * ((1 << 20) + 1), "1,048,577 characters"),
    "a long text": ("{{ 'abcdefgh' * 4000000 }}", "gives more than 1,048,576 characters"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", AROUND)
def test_a_template_that_behaves_until_it_is_used_is_refused_then(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, words = AROUND[name]
    # Only a loop needs a limit that is soon over; loading Jinja and filling a gibibyte count too.
    monkeypatch.setattr(template, "RENDER_SECONDS", 3 if LOOP in text else 60)
    prompt = Prompt(kind="chat", template="{question}")
    with pytest.raises(Problem, match=words) as caught:
        prompt_tokens(prompt, tokenizer_with(text), ["x"])
    assert caught.value.diagnostics[0].code == "E0812"
    # What comes after it finds a new process.
    after = tokenizer_with("x 1?")
    assert prompt_tokens(prompt, after, ["x"]) == [tuple(after.encode("x 1?", add_special_tokens=False))]


def test_many_prompts_have_time_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A template may be slow; each prompt brings some time with it. Together these take longer than one may."""
    monkeypatch.setattr(template, "RENDER_SECONDS", 3)
    slow = tokenizer_with(
        "{% for i in range(190) %}{% for j in range(1000) %}{% set x = i * j %}{% endfor %}{% endfor %}x"
    )
    prompt = Prompt(kind="chat", template="{question}")
    assert len(prompt_tokens(prompt, slow, ["x"] * 150)) == 150


def test_a_process_that_somebody_ends_ends_what_asked_it() -> None:
    prompt, tokenizer = Prompt(kind="chat", template="{question}"), tokenizer_with("x 1?")
    whole = prompt_tokens(prompt, tokenizer, ["x"])
    process = template._process(template.RENDER_SECONDS)._process
    assert process is not None
    process.process.kill()
    with pytest.raises(ProcessDied, match="signal 9"):
        prompt_tokens(prompt, tokenizer, ["x"])
    assert prompt_tokens(prompt, tokenizer, ["x"]) == whole
