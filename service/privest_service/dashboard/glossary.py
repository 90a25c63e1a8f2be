"""The words of the pages in plain words: pages show them beside a question mark, and all of them together."""

from privest.estimators.registry import ESTIMATORS

_WORDS = {
    "record": (
        "a record",
        "What is protected as one: usually a row, and so a person with one row. If the data declares a "
        "unit, all rows of that unit are one record.",
    ),
    "budget": (
        "a budget",
        "The most that all answers together may ever tell about one record. When it is spent, every "
        "further question is refused. What is spent never comes back.",
    ),
    "epsilon": (
        "ε",
        "How much an answer may tell about one record. 0 tells nothing. At 0.1 the answer looks almost "
        "the same whoever replaced you; at 1 it may tell something; above 5 it promises little.",
    ),
    "delta": (
        "δ",
        "The probability with which the promise of ε may fail. It should be far smaller than one in the "
        "number of records.",
    ),
    "guess": (
        "guessing right",
        "Suppose that somebody knows all records but yours, and that yours is one of two, each as "
        "likely. Without any answer a guess is right 50 % of the time. The figure says how often at "
        "most it is right with the answers. No attack, however clever, does better.",
    ),
    "share": (
        "the share of the budget",
        "What a question takes of the whole budget. Shares add up to what is spent, but that each is rounded "
        "up. The ε of single datasets or analysts do not: together they tell less than their sum. An ε at "
        "the δ of the budget is told at nine tenths of that δ, as a tenth is kept for random batches.",
    ),
    "cap": (
        "a cap",
        "A limit on what one analyst may spend on a dataset, or all together on a dataset, within the "
        "budget.",
    ),
    "clip": (
        "a clip",
        "A limit on how much one record may add to an answer. What is beyond it is cut off. So noise of a "
        "fixed size hides anybody, and a clip that is too small draws the answer aside.",
    ),
    "noise": (
        "noise",
        "Random numbers that are added to every answer, so that no single record shows. Less ε means "
        "more noise.",
    ),
    "window": (
        "a window",
        "A period of a budget. Each keeps its own promise and begins with nothing spent. Over several "
        "windows people are promised less than over one.",
    ),
    "renewal": (
        "a renewal",
        "A new window of a budget, opened by hand or by a rule. The promise may be made for each window, so "
        "that several promise less than one, or for all of them together, so that each gets a part.",
    ),
    "pace": (
        "a pace",
        "The most that any seven days may take of a window. What would take more is refused until days have "
        "passed. It is a brake, and makes no promise stronger.",
    ),
    "approval": (
        "an approval",
        "An owner's yes to one question before it runs. Until then nothing is charged. A question that "
        "nobody decides on in time ends by itself.",
    ),
    "purpose": (
        "a purpose",
        "What an analyst may ask for, in the owner's words. It is shown beside each question that waits for "
        "approval. No program checks that questions keep to it.",
    ),
    "act": (
        "an act",
        "Something that somebody did: a grant, a cap, a freeze, a key, a decision, a sign-in. Each is "
        "recorded with who, when and why, and linked to the one before.",
    ),
    "witness": (
        "a witness",
        "A place of yours to which the signed ends of all chains are sent on a schedule. If somebody later "
        "cuts or changes the ledger, it does not fit what the witness keeps.",
    ),
    "composition": (
        "composition",
        "How a budget counts several answers: gdp counts what they tell together, basic simply adds up "
        "their ε and δ and so allows fewer.",
    ),
    "plan": (
        "a plan",
        "What a question would cost, and how far off its answer may be, computed from public facts. It "
        "charges nothing and reads no rows.",
    ),
    "error": (
        "how far off an answer may be",
        "The distance between the answer and what an answer without noise would be. In 95 of 100 runs "
        "it is at most the number shown, under what the page says it assumes.",
    ),
    "freeze": (
        "a freeze",
        "It stops all questions at once: new ones are refused, waiting ones are held. Nothing is lost.",
    ),
    "ledger": (
        "the ledger",
        "The book of all that was charged. Entries are linked and signed, so that a change or a "
        "deletion shows.",
    ),
    "fingerprint": (
        "a fingerprint",
        "A code that is equal for equal rows. Only you see it: it tells which datasets hold the same rows.",
    ),
}
"""Words of budgets and of the ledger."""

GLOSSARY = _WORDS | {name: (each.title, each.plain_words) for name, each in ESTIMATORS.items()}
"""What each term is called in a question, and what it means, by its name in addresses."""
