"""Explanations in a report, for readers who do not know about noise and transcripts."""

ACTIVITY = (
    "From the receipts. They say how many records a request removed or added, and on which day, but not how it went."
)

CALIBRATION = (
    "A dot for each tenth of the {}, larger if it has more test records. On the dashed line the class is true as often "
    "as predicted. The expected calibration error is the mean distance from that line over all test records."
)

USES = {
    "steps": (
        "A record affects only its own step and those after it. Because of the noise, the later steps can usually be "
        "kept: they are then exactly as likely without the record."
    ),
    "steps without noise": (
        "A record affects only its own step and those after it. After a deletion these are computed again without it."
    ),
    "rounds": (
        "A record affects every round. Because of the noise, rounds can usually be kept when a record is deleted: they "
        "are then exactly as likely without the record."
    ),
    "rounds without noise": (
        "A record affects every round. When a record is deleted, the rounds are computed again without it."
    ),
    "sums without noise": (
        "Sums are whole multiples of a small unit. So a record can be subtracted without a trace, and no noise is "
        "needed."
    ),
}
"""How records are used, by the kind of a plan."""

_TREE = "Each sum has the noise of a few nodes of a binary tree. A record affects only a few nodes."
ADDS = {
    "sqrt": (
        "Each sum has the noise of its own step and, with decreasing weight, of the steps before it. So little noise "
        "is enough."
    ),
    "tree": _TREE,
    "anytime": _TREE,
    "halving": _TREE,
    "identity": "Each round has its own noise.",
}
"""How noise is added, by mechanism."""

SHOWS = {
    "state": ("The model, and everything stored with it, follows from the records in the file and from no others."),
    "exactness": (
        "After a deletion everything has the same probability distribution as if the record had never been used. "
        "Expunge’s documentation proves this for every size. Here it was tested on a small problem with this model’s "
        "own plan, next to a deliberate mistake that must be detected."
    ),
    "receipts": (
        "The chain of receipts says which requests were recorded as done, and on which day. It shows that no receipt "
        "was altered or removed since the head was noted elsewhere or a later receipt was signed."
    ),
    "people": (
        "The people who were looked for are not among the ids, subjects or rows of the model. Their bytes, unless too "
        "short to search for, are in no file of the store, or belong to other records."
    ),
    "free pages": "Space in the file that deleted records have freed is blank.",
}
"""What is shown if a check has passed, by its key."""

SHOWS_OF_ARRIVAL = {
    "exactness": (
        "After a deletion everything has the probability distribution of training in the stored order without the "
        "record. That order shows in which places records were deleted, never their contents. It must not be released."
    )
}
"""What is shown instead if records are in the order in which they came."""

DOES_NOT_SHOW = (
    "That nobody has kept a copy of the file, of a record, of an earlier model or of a prediction. Nothing can show "
    "that.",
    "What is in backups, exports and snapshots, or in old blocks of a disk.",
    "How the data was prepared before training: scaling, vocabularies, choices made by looking at records.",
    "That the receipts are true: anyone who holds the file and the signing key could write any receipt. They say that "
    "the operator’s software recorded a request as done.",
    "That requests were made without looking at the model. The guarantee holds for requests that do not depend on it.",
    "How any request went. Whether a model was kept or trained again, and how long that took, depends on the deleted "
    "record. It is not stored, and so it is not in this report.",
)
