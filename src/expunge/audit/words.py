"""What a report says to readers who have never heard of noise and transcripts."""

ACTIVITY = (
    "From the receipts: they say how many records a request removed or added, on which day, and nothing of how it went."
)

USES = {
    "steps": (
        "Only the step of a record knows it, and those after. Thanks to the noise, what comes after can mostly "
        "stay: it "
        "is then exactly as likely without the record."
    ),
    "steps without noise": "Only the step of a record knows it, and those after. These are made again without it.",
    "rounds": (
        "Every round knows every record. Thanks to the noise, rounds can mostly stay when one is erased: they are then "
        "exactly as likely without the record."
    ),
    "rounds without noise": "Every round knows every record. When one is erased, they are made again without it.",
    "sums without noise": (
        "Sums are whole numbers of a fine unit, so that a record can be taken out without a trace, and there is "
        "no need "
        "of noise."
    ),
}
"""How records are used, by the kind of a plan."""

_TREE = "Each sum has the noise of a few nodes of a binary tree: a record can only be seen in these."
ADDS = {
    "sqrt": "Each sum has the noise of its own step and, ever less, of those before it: so little noise is enough.",
    "tree": _TREE,
    "anytime": _TREE,
    "halving": _TREE,
    "identity": "Each round has noise of its own.",
}
"""How noise is added, by mechanism."""

SHOWS = {
    "state": (
        "The model, and all that is kept beside it, follows from the records that are in the file and from no others."
    ),
    "exactness": (
        "Deletions are made so that afterwards everything has the same probability law as if the record had never been "
        "there: proved for every size in Expunge’s documentation, and tried here on a small problem with this model’s "
        "own plan, beside a mistake that must be noticed."
    ),
    "receipts": (
        "The chain of receipts says which requests were recorded as done, on which day, and that none was altered or "
        "taken out since its head was noted elsewhere or a later one was signed."
    ),
    "people": (
        "Those who were looked for are among no ids, subjects or rows that the model holds, and their bytes, unless "
        "too short to search for, are in no file of the store, or belong to records that are there."
    ),
    "free pages": "Space of the file that deleted records have left is blank.",
}
"""What is shown if a check has passed, by its key."""

SHOWS_OF_ARRIVAL = {
    "exactness": (
        "Deletions are made so that afterwards everything has the law of training in the stored order without the "
        "record. That order tells in which places records were deleted, never what they said; it must not be released."
    )
}
"""What is shown instead if records lie in the order in which they came."""

DOES_NOT_SHOW = (
    "That nobody has kept a copy: of the file, of a record, of an earlier model, of a prediction made with it. Nothing "
    "can show that.",
    "What lies in backups, exports and snapshots, or in old blocks of a disk.",
    "What was done to the data before it came to the model: scaling, vocabularies, choices made by looking at records.",
    "That the receipts are true: whoever holds the file and the signing key could write any. They say that the "
    "operator’s software recorded a request as done.",
    "That requests were made without looking at the model: the guarantee holds for requests that do not depend on it.",
    "How any request went. Whether a model was kept or trained again, and how long that took, depends on the record "
    "that left; it is not stored, and so not here.",
)
