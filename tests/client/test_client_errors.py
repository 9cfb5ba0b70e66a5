"""What an error of the client says."""

from __future__ import annotations

from topmast.errors import TopmastError, Violation


def test_what_the_sentence_says_already_is_not_said_again_though_it_was_cut() -> None:
    sentence = "the fleet has not the virtual clusters of its tenants: " + "tenant ml, " * 40
    cut = Violation("fleet", sentence[:400] + "...")
    other = Violation("tables", "there is none")
    assert str(TopmastError(sentence, violations=(cut,))) == sentence
    assert str(TopmastError(sentence, violations=(cut, other))) == f"{sentence}; tables: there is none"
