"""Addresses of pages and headings that moved, and the anchors that headings have."""

from __future__ import annotations

import json
import re
from pathlib import Path

from reodsl.diagnostics.dropped import MERGED

MOVED = {
    "CLUSTERS.md#guarantees": "CLUSTERS.md#what-servers-guarantee",
    "CLUSTERS.md#in-turn-with-a-trainer": "CLUSTERS.md#memory",
    "CLUSTERS.md#measured": "PROOFS.md#unproven-without-a-gpu",
    "CLUSTERS.md#unproven-without-a-gpu": "PROOFS.md#unproven-without-a-gpu",
    "CLUSTERS.md#slurm-and-kuberay": "CLUSTERS.md#slurm-and-kubernetes",
    "COOKBOOK.md#1-try-another-value-once": "COOKBOOK.md#change-one-setting-for-one-run",
    "COOKBOOK.md#2-compare-several-values": "COOKBOOK.md#sweep-a-value",
    "COOKBOOK.md#3-several-seeds-with-intervals": "COOKBOOK.md#several-seeds-with-intervals",
    "COOKBOOK.md#4-write-a-reward": "REWARDS.md",
    "COOKBOOK.md#5-reward-answers-at-several-budgets": "REWARDS.md#reward-answers-at-several-budgets",
    "COOKBOOK.md#6-use-your-own-questions": "DATA.md#questions",
    "COOKBOOK.md#7-use-a-data-set-of-the-hugging-face-hub": "DATA.md#questions",
    "COOKBOOK.md#8-read-answers-that-are-in-no-box": "DATA.md#where-the-answer-is-read",
    "COOKBOOK.md#9-use-your-own-model": "DATA.md#models",
    "COOKBOOK.md#10-evaluate-on-other-questions": "EVALUATE.md#a-local-model",
    "COOKBOOK.md#11-dapos-settings": "REWARDS.md#make-it-a-method",
    "COOKBOOK.md#12-dr-grpos-settings": "REWARDS.md#make-it-a-method",
    "COOKBOOK.md#13-sft-then-rl": "COOKBOOK.md#sft-then-rl",
    "COOKBOOK.md#14-rejection-sampling": "REWARDS.md#choose-responses-and-questions",
    "COOKBOOK.md#15-preferences-the-shortest-right-response-over-the-longest": "REWARDS.md#choose-responses-and-questions",
    "COOKBOOK.md#16-a-limit-that-shrinks-stage-by-stage": "COOKBOOK.md#train-in-stages",
    "COOKBOOK.md#17-train-on-questions-of-the-right-difficulty": "REWARDS.md#choose-responses-and-questions",
    "COOKBOOK.md#18-reg-of-your-own-curves": "EVALUATE.md#published-frontiers-and-tables",
    "COOKBOOK.md#19-run-on-gpus-with-a-limit-on-the-cost": "COOKBOOK.md#limit-the-cost",
    "COOKBOOK.md#20-continue-in-python": "COOKBOOK.md#use-python",
    "COOKBOOK.md#21-evaluate-a-model-behind-an-address": "EVALUATE.md#a-model-served-by-vllm-or-sglang",
    "LANGUAGE.md#a-file": "LANGUAGE.md",
    "LANGUAGE.md#all-of-it-in-one-file": "LANGUAGE.md",
    "LANGUAGE.md#declarations": "LANGUAGE.md#2-define-the-experiment",
    "LANGUAGE.md#params": "LANGUAGE.md#5-change-a-value",
    "LANGUAGE.md#rewards": "REWARDS.md",
    "LANGUAGE.md#stages": "TRAINING.md#stages",
    "LANGUAGE.md#studies": "LANGUAGE.md#3-compare-it-in-a-study",
    "LANGUAGE.md#from-elsewhere": "FAQ.md#names-in-other-frameworks",
    "START.md#install-5-minutes": "START.md#before-you-begin",
    "START.md#the-quickstart-5-to-10-minutes": "START.md#read-the-report-10-minutes",
    "START.md#your-own-baseline-10-minutes": "START.md#write-your-own-baseline-15-minutes",
    "START.md#somebodys-log-2-minutes": "START.md#compute-curves-from-a-log-2-minutes",
    "START.md#your-own-model-and-data-10-minutes": "DATA.md",
    "START.md#questions": "FAQ.md",
    "COOKBOOK.md#compare-with-published-numbers": "EVALUATE.md#published-frontiers-and-tables",
    "COOKBOOK.md#methods-of-the-paper": "METHODS.md#the-papers-tables",
    "COOKBOOK.md#methods-elsewhere": "METHODS.md",
    "SCIENCE.md#how-often-they-hold": "EVIDENCE.md#how-often-intervals-hold",
    "PRICE.md#model-and-lengths": "PRICE.md#the-model",
    "PRICE.md#rollouts-beside-training": "PRICE.md#lag",
    "PRICE.md#verification-and-training": "PRICE.md#training",
    "PRICE.md#held-against-published-numbers": "PROOFS.md#prices",
    "PRICE.md#held-against-measured-runs": "PROOFS.md#prices",
    "TRAINING.md#interruption": "TRAINING.md#resume",
    "TRAINING.md#memory": "TRAINING.md#memory-and-lora",
    "TRAINING.md#processes": "TRAINING.md#several-gpus",
    "TRAINING.md#rollouts-beside-training": "TRAINING.md#lag",
    "TRAINING.md#thinking-and-solution": "TRAINING.md#thinking-budgets",
    "TRAINING.md#what-a-model-thinks-of-a-response": "REWARDS.md#token-probabilities",
    "IMPORT.md": "EVALUATE.md",
    "IMPORT.md#kinds-of-curves": "EVALUATE.md#kinds-of-curves",
    "IMPORT.md#responses-of-any-model": "EVALUATE.md#logs-of-other-tools",
    "IMPORT.md#what-a-table-gives": "EVALUATE.md#what-a-table-gives",
    "IMPORT.md#in-a-spec": "EVALUATE.md#imported-results-in-a-study",
    "IMPORT.md#answers-forced-out-of-texts": "EVALUATE.md#force-answers-from-texts",
    "IMPORT.md#a-model-behind-an-address": "EVALUATE.md#a-model-served-by-vllm-or-sglang",
    "JSON.md#parts": "JSON.md#objects-of-several-commands",
    "JSON.md#change": "JSON.md#changed-option",
    "JSON.md#going": "JSON.md#running-task",
    "JSON.md#difference": "JSON.md#changed-setting",
    "JSON.md#acceptance": "JSON.md#accepted-result",
    "JSON.md#outcome": "JSON.md#verdict",
    "SANDBOX.md": "../SECURITY.md#the-sandbox",
    "EVIDENCE.md#results": "EVIDENCE.md#a-real-language-model-on-two-cores",
    "EVIDENCE.md#cost": "EVIDENCE.md#a-real-language-model-on-two-cores",
    "OWN_CODE.md#limits": "OWN_CODE.md#limits-and-failures",
    "OWN_CODE.md#what-is-part-of-a-result": "OWN_CODE.md#what-the-file-may-do",
    "OWN_CODE.md#the-first-run": "OWN_CODE.md#allow-it",
    "OWN_CODE.md#a-package": "OWN_CODE.md#allow-it",
    "OWN_CODE.md#where-the-program-is-read": "OWN_CODE.md#code-tasks",
    "OWN_CODE.md#the-shapes-of-tests": "OWN_CODE.md#code-tasks",
    "OWN_CODE.md#limits-of-a-program": "OWN_CODE.md#code-tasks",
    "../SECURITY.md#who-is-trusted-with-what": "../SECURITY.md#whom-you-trust-with-what",
    "../SECURITY.md#what-goes-wrong-around-a-run": "../SECURITY.md#what-happens-if-something-goes-wrong",
    "RESULTS.md#following-a-run": "RESULTS.md#follow-a-run",
    "RESULTS.md#every-response": "RESULTS.md#read-every-response",
    "RESULTS.md#sharing": "RESULTS.md#share",
    "LOG.md#tasks-where-methods-might-end-apart": "LOG.md#tasks-that-should-tell-methods-apart",
    "LOG.md#packing-on-gpus": "LOG.md#gpus",
    "LOG.md#graphics-processors": "LOG.md#gpus",
    "LOG.md#parts-that-were-to-go": "LOG.md#code-that-was-to-go-and-stays",
}
"""Each address that moved, and where it leads now, from the folder of documents."""
GONE = {old for old in MOVED if "#" not in old}
"""Pages that moved as a whole: a line in their file says where to."""


def slug(title: str) -> str:
    """Return the anchor that a heading has."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title.lower())).strip("-")


def slugs(text: str) -> list[str]:
    """Return the anchors of a text's headings."""
    return [slug(each) for each in re.findall(r"^#+ (.*)$", text, flags=re.M)]


def address(page: str) -> str:
    """Return a page's address on the site, where pages of the repository's top are beside the documents."""
    return page.removeprefix("../").replace(".md", ".html")


def redirects() -> str:
    """Return the script that leads from each address that moved to the new one."""
    table = {address(old): address(new) for old, new in MOVED.items()}
    return (
        f"const moved = {json.dumps(table, indent=2)};\n"
        "const old = location.pathname.split('/').pop();\n"
        "const now = moved[old + location.hash] || moved[old];\n"
        "if (now) location.replace(now);\n"
    )


def write_moved_pages(html: Path) -> None:
    """Write a page for each that moved, or whose code is a part of another, which leads on with and without a script."""
    pages = {old: MOVED[old] for old in GONE}
    pages |= {f"diagnostics/{old}.md": f"{code}.md" for old, code in MERGED.items()}
    for old, page in pages.items():
        now = address(page)
        html.joinpath(old.replace(".md", ".html")).write_text(
            f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Moved</title>'
            f'<script src="{"../" * old.count("/")}moved.js"></script><meta http-equiv="refresh" content="0; url={now}">'
            f'<p>This page has moved: <a href="{now}">{now}</a>.</p></html>\n'
        )
