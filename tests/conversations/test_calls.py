"""Calls of tools in what a model wrote: what is read, and what is none."""

import pytest

from runners.conversations import MOST_CALLS, calls_of

ADD = {"name": "add", "arguments": {"a": 1}}


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("no call", []),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', [ADD]),
        ('so <tool_call>\n{"name": "add", "arguments": "{\\"a\\": 1}"}\n</tool_call> x', [ADD]),
        ('<tool_call>{"name": "now"}</tool_call>', [{"name": "now", "arguments": {}}]),
        ('<tool_call>{"name": "add", "arguments": {"a": 1}}', []),
        ('<tool_call>{"name": "add"}</tool_call></think> 7', []),
        ('<think>x</think><tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>', [ADD]),
    ],
)
def test_calls_are_read_outside_of_thinking(text, calls):
    assert calls_of(text) == calls


@pytest.mark.parametrize(
    "inside",
    [
        "",
        "add(1)",
        "[1]",
        "7",
        "null",
        '{"arguments": {}}',
        '{"name": 7}',
        '{"name": "a", "arguments": [1]}',
        '{"name": "a", "arguments": "7"}',
        "[" * 100_000,
        "9" * 5_000,
    ],
)
def test_what_is_no_call_says_so(inside):
    (call,) = calls_of(f"<tool_call>{inside}</tool_call>")
    assert set(call) == {"error"}


def test_a_turn_makes_so_many_calls():
    assert len(calls_of('<tool_call>{"name": "a"}</tool_call>' * 100)) == MOST_CALLS
