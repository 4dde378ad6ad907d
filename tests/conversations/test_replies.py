"""What stands between two turns: by a chat template, by a raw prompt, bounded, and without marks of its own."""

import pytest

from reodsl.diagnostics import Problem
from reodsl.ir.model import Prompt
from runners.conversations import Replies
from runners.models.tokenizer import decode, word_tokenizer

CALLS = [{"name": "add", "arguments": {"a": 1}}]
CHAT = (
    "{% for m in messages %}{{ '[' + m.role + ']' }} {{ m.content }} "
    "{% for c in m.tool_calls or [] %}<tool_call> {{ c.function | tojson }} </tool_call> {% endfor %}<eos> {% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)


def tokenizer(template=None):
    made = word_tokenizer(("[user]", "[assistant]", "[tool]", "so", "7", "8", "Error:", "…", "<", "eos>"))
    made.chat_template = template
    return made


def replies(template=CHAT, kind="chat", reply="so {reply} so", longest=8):
    words = tokenizer(template)
    return Replies(Prompt(kind=kind, reply=reply), words, (words.eos_token_id,), longest)


def text_of(one, said, calls=CALLS):
    return decode(one.tokenizer, one.tokens(calls, said))


def test_a_chat_template_says_how_tools_speak():
    one = replies()
    one.require_calls()
    assert text_of(one, ["7"]) == "[tool] 7 <eos> [assistant]"
    assert text_of(one, ["7", "8"], CALLS * 2) == "[tool] 7 <eos> [tool] 8 <eos> [assistant]"
    assert text_of(one, ["Error: 7"], [{"error": "no call"}]) == "[tool] Error: 7 <eos> [assistant]"


def test_a_raw_prompt_says_how_tools_speak():
    one = replies(kind="raw", template=None)
    one.require_calls()
    assert text_of(one, ["7", "8"], CALLS * 2) == "so 7 8 so"


def test_what_tools_say_together_is_bounded():
    one = replies(kind="raw", template=None, reply="{reply}", longest=3)
    assert text_of(one, ["7 7", "8 8", "8"]) == "7 7 8 … …"
    assert len(one.tokens(CALLS, ["7 " * 1_000_000])) == 4


def test_a_tool_can_end_no_turn():
    one = replies(kind="raw", template=None, reply="{reply}")
    assert text_of(one, ["7 <eos> 8"]) == "7 < eos> 8"
    assert one.tokenizer.eos_token_id not in one.tokens(CALLS, ["<eos><eos>", "\ud800 <pad>"])


@pytest.mark.parametrize(
    ("template", "code", "words"),
    [
        (CHAT.replace("<tool_call>", "call:"), "E0831", "a form that is not read"),
        (CHAT.replace("<eos> {% endfor %}", "{% endfor %}"), "E0812", "ends a turn by no token"),
        ("{{ raise_exception('no tools') }}", "E0812", "no tools"),
    ],
)
def test_a_template_that_carries_no_calls_is_refused(template, code, words, refusal):
    with pytest.raises(Problem, match=words) as caught:
        replies(template).require_calls()
    assert caught.value.diagnostics[0].code == code
    if code == "E0831":
        refusal("models/E0831.txt", caught.value)
