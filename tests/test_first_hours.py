"""What used to stop a new user, each with the tests that show how it goes now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

SHOWN_BY: dict[str, tuple[str, ...]] = {
    "own Python judges, rewards and asks": (
        "own/test_allowed.py::test_the_spec_with_code_of_its_own_runs_and_runs_again_where_that_changes",
        "own/test_function.py::test_the_documents_verifiers_run",
    ),
    "answers in another form are told of, with what reads them": (
        "doubts/test_answers.py::test_responses_in_another_form_are_told_with_what_reads_them",
        "doubts/test_answers.py::test_a_step_of_training_is_told_of_by_its_share",
    ),
    "what the objective lacks is said to be unsupported, and what it has is named": (
        "language/test_slips.py::test_slips",
    ),
    "batch normalisation goes together with dynamic sampling": (
        "train/test_gather.py::test_a_batch_of_several_rounds_is_normalised_as_one",
    ),
    "a reward is tried on a group made by hand": ("cli/test_reward.py::test_numbers_by_hand",),
    "the help of a message can be followed": (
        "language/test_slips.py::test_slips",
        "language/test_messages_that_lead_on.py::test_an_answer_may_end_with_its_line",
        "language/test_messages_that_lead_on.py::test_a_method_in_place_of_a_value_is_told_how_it_is_written",
        "language/test_reward_functions.py::test_a_fraction_beside_a_length_is_no_number_of_tokens",
    ),
    "brackets, marks and spreads in the terminal are explained": (
        "report/test_terminal.py::test_brackets_and_marks_are_said",
        "report/test_terminal.py::test_a_study_without_a_score_says_what_a_spread_is",
    ),
    "a percentage of a REG near 0 is not shown": (
        "report/test_sound_numbers.py::test_a_percentage_stands_only_where_its_denominator_is_apart_from_0",
    ),
    "a reward that is normalised by hand has a curve": (
        "language/test_metrics.py::test_metrics_are_any_expressions",
    ),
    "reference samples are of the questions that training meets": (
        "graph/test_lower.py::test_references_are_of_the_questions_that_training_meets",
        "evaluate/test_sample.py::test_questions_that_training_meets_are_sampled_alone",
    ),
    "lets, functions and metrics see the splits": ("rewards/test_splits_anywhere.py::test_as_a_loop_has_it",),
    "splits past a response's end can be left out": (
        "train/test_rollouts.py::test_splits_past_a_responses_end_are_left_out",
    ),
    "published methods are short, and nothing that executes names one": (
        "specs/test_twelve.py::test_a_method_takes_at_most_25_lines",
        "specs/test_twelve.py::test_no_runner_knows_one_of_them",
    ),
    "a study sweeps over values": ("language/test_sweeps.py::test_an_arm_for_each_combination",),
    "the paper's notes and settings stay with the paper's specs": (
        "language/test_whole_suites.py::test_a_suite_needs_no_grid",
    ),
    "why shows both sides of a reward": ("plan/test_changes.py::test_a_reward_is_shown_before_and_after",),
    "rollouts have their text": (
        "train/test_gather.py::test_the_text_of_responses_is_kept_as_far_as_it_fits",
    ),
    "a run fetches what it lacks": (
        "share/test_fetch.py::test_a_run_fetches_what_is_missing_when_it_is_told_to",
        "share/test_fetch.py::test_a_data_set_that_is_half_there_is_fetched",
    ),
}

_OWN = "own/test_function.py"
_ALL_FAIL = "test_what_fails_is_one_message_with_its_line_in_every_role"
_ALL_UNFIT = "test_a_value_that_is_not_what_is_asked_is_one_message"
ONE_MESSAGE_FOR: dict[str, tuple[str, ...]] = {
    "own code that loops": (f"{_OWN}::test_a_loop_ends", f"{_OWN}::loops"),
    "own code that forks": (f"{_OWN}::forks", f"{_OWN}::starts"),
    "own code that writes": (f"{_OWN}::writes",),
    "own code that prints megabytes": (f"{_OWN}::prints", f"{_OWN}::{_ALL_FAIL}"),
    "own code that gives NaN": (f"{_OWN}::nan", f"{_OWN}::{_ALL_UNFIT}"),
    "own code that gives another shape": (
        f"{_OWN}::test_a_list_of_another_length_is_refused",
        f"{_OWN}::test_a_list_of_another_shape_is_one_message",
    ),
    "own code that gives another type": (f"{_OWN}::text", f"{_OWN}::nothing", f"{_OWN}::{_ALL_UNFIT}"),
    "own code that changed since the start": (
        "own/test_allowed.py::test_content_that_changed_since_the_start_does_not_run",
    ),
    "own code that changed between two runs": (
        "own/test_allowed.py::test_run_asks_for_new_content_and_says_what_to_type",
        "own/test_allowed.py::test_a_file_that_changes_between_two_runs_is_new_work_for_what_it_judged_or_made",
    ),
    "own code that imports what is not there": (f"{_OWN}::imports", f"{_OWN}::{_ALL_FAIL}"),
    "an entropy bonus of a method that has none": (
        "language/test_messages_that_lead_on.py::test_a_change_of_one_experiment_is_not_told_to_name_it",
        "language/test_slips.py::test_slips",
    ),
    "splits that a reward does not have, or of two kinds": (
        "language/test_splits_anywhere.py::test_what_is_wrong_is_said_once",
    ),
    "a track that reads itself": ("language/test_tracks.py::test_one_mistake_is_told_of_once",),
}
"""Bad input, each with the tests that show its one message."""


@pytest.mark.parametrize("what", [*SHOWN_BY, *ONE_MESSAGE_FOR])
def test_each_is_shown_by_tests_that_are_there(what: str) -> None:
    for test in (SHOWN_BY | ONE_MESSAGE_FOR)[what]:
        path, _, name = test.partition("::")
        # A test, or the name of one of its cases.
        assert re.search(
            rf'^(    )?def {name}\(|"{name}"', (TESTS / path).read_text(encoding="utf-8"), re.M
        ), test
