"""What the attack on an owner's books compares: it must not hide what it is there to see."""

import httpx
import pytest

from audit.books import Mask

JOB, OTHER = f"job_{'1a' * 12}", f"job_{'2b' * 12}"


def told(*bodies: object) -> list[object]:
    """Masked, in one conversation."""
    mask = Mask()
    return [mask.told(httpx.Response(200, json=body)) for body in bodies]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"id": JOB}, {"id": OTHER}),
        ({"hash": "3c" * 32}, {"hash": "4d" * 32}),
        ({"signature": f"{'a/' * 43}=="}, {"signature": f"{'+b' * 43}=="}),
        ({"at": "2026-11-22T13:19:43.443273+00:00"}, {"at": "2026-11-22T13:19:44.000001+00:00"}),
        ({"estimate": {"point": [0.25]}}, {"estimate": {"point": [-0.125]}}),
        ({"entries": ["5e" * 16, "6f" * 16]}, {"entries": ["7a" * 16, "8b" * 16]}),
    ],
)
def test_what_is_random_is_taken_out(one: object, other: object) -> None:
    assert told(one) == told(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"account": 3}, {"account": 4}),
        ({"account": 1234567890123456789}, {"account": 1234567890123456788}),
        ({"seq": 2}, {"seq": 3}),
        ({"entries": ["5e" * 16, "6f" * 16]}, {"entries": ["7a" * 16, "7a" * 16]}),
        ({"entries": ["5e" * 16]}, {"entries": ["5e" * 16, "6f" * 16]}),
        ({"entries": ["5e" * 16]}, {"entries": ["5e" * 32]}),
        ({"charges": [0.4]}, {"charges": [0.5]}),
        ({"id": "job_4"}, {"id": "job_5"}),
        ({"detail": JOB}, {"detail": None}),
    ],
)
def test_all_else_is_compared(one: object, other: object) -> None:
    assert told(one) != told(other)


def test_what_comes_again_is_known_again() -> None:
    assert told({"id": JOB}, {"id": OTHER}, {"id": JOB}) != told({"id": JOB}, {"id": OTHER}, {"id": OTHER})


def test_a_length_is_compared_unless_released_numbers_are_in_it() -> None:
    [(_, refusal, _), (_, answer, _)] = told({"status": 409}, {"estimate": {"point": [0.25]}})
    assert "content-length" in refusal
    assert "content-length" not in answer
