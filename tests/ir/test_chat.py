"""Chat formats: a message is found in the turns that models' own templates write, and nowhere in plain questions."""

from __future__ import annotations

import pytest

from reodsl.ir.chat import find_turn, question_key

QUESTION = "Let $x<y$ with [1, 2] | {3}. What is $x+y$?"
# What the templates of these models write for one question, with a system message where they have one.
TURNS = {
    "DeepSeek-R1-Distill": "<｜begin▁of▁sentence｜><｜User｜>{}<｜Assistant｜><think>\n",
    "DeepSeek, as AReaL-boba has it": "<｜User｜>\n{}<｜Assistant｜><think>\n",
    "DeepSeek in ASCII": "<|User|>{}<|Assistant|>",
    "Qwen2.5": (
        "<|im_start|>system\nYou are Qwen.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
    ),
    "Qwen3": "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n<think>\n",
    "Llama 3": (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    ),
    "Llama 4": "<|header_start|>user<|header_end|>\n\n{}<|eot|><|header_start|>assistant<|header_end|>\n\n",
    "Llama 2": "<s>[INST] <<SYS>>\nYou are helpful.\n<</SYS>>\n\n{} [/INST]",
    "Mistral": "<s>[INST] {} [/INST]",
    "Gemma": "<bos><start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n",
    "Phi-3": "<|user|>\n{}<|end|>\n<|assistant|>\n",
    "Phi-4": "<|im_start|>user<|im_sep|>{}<|im_end|><|im_start|>assistant<|im_sep|>",
    "Zephyr": "<|system|>\n</s>\n<|user|>\n{}</s>\n<|assistant|>\n",
    "gpt-oss": "<|start|>user<|message|>{}<|end|><|start|>assistant",
    "Granite": "<|start_of_role|>user<|end_of_role|>{}<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
    "Command": (
        "<BOS_TOKEN><|START_OF_TURN_TOKEN|><|USER_TOKEN|>{}<|END_OF_TURN_TOKEN|>"
        "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"
    ),
    "Vicuna": "A chat between a curious user and an assistant. USER: {} ASSISTANT:",
    "Alpaca": "Below is an instruction.\n\n### Instruction:\n{}\n\n### Response:\n",
    "R1-Zero": "User: {}\nAssistant: <think>",
}


@pytest.mark.parametrize("model", TURNS)
def test_a_question_is_the_same_in_every_format(model: str) -> None:
    text = TURNS[model].format(QUESTION)
    found = find_turn(text)
    assert found is not None
    assert found.before + found.message + found.after == text
    assert question_key(text) == question_key(QUESTION)


@pytest.mark.parametrize(
    "question",
    [
        QUESTION,
        "<q> 5 a -6 b +3 ? <think>",
        "The user: who is it? Assistant: nobody",
        "Is |User| < |Assistant| for all sets? Show that <x|y> = [I] and [N]/[S] = 1.",
        "What does `</think>` end, and what is 2</s>?",
        "A memo says: 'USER: press 3.' How many presses?",
        "### Instruction: fold the paper 3 times. How thick is it?",
    ],
)
def test_a_plain_question_holds_no_marks(question: str) -> None:
    assert find_turn(question) is None
