"""How a measure is written: the notation of ir_measures, ``Name(parameter=value)@cutoff``.

Names are read here and not by ir_measures, because its parser needs the package (an optional dependency) and uses
nodes of ``ast`` that Python 3.14 no longer has. A test holds the table below against ir_measures' own registry. To its
names come six of ours: ``all_recall@k`` (ToolRet's completeness: everything relevant was found), ``Coverage@k``
(FreshStack: share of a query's nuggets that the first k documents support), ``nugget_RR@k`` (MultiHop-RAG: mean
reciprocal rank of the first support of each nugget), ``Robustness@k`` (InstructIR: the worst
nDCG@k among the variants of a query), ``accuracy`` and ``accuracy_argmax`` (RAR-b's multiple choice).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from crumb_tasks.errors import UsageError, did_you_mean

Family: TypeAlias = Literal["graded", "binary"]
Value: TypeAlias = int | float | str | bool | tuple[tuple[int, int], ...]

_FORM: Final = re.compile(r"\s*(?P<name>[^\W\d]\w*)\s*(?:\((?P<arguments>.*)\)\s*)?(?:@\s*(?P<at>\d+(?:\.\d+)?)\s*)?")
_EXAMPLES: Final = "nDCG@10, P(rel=2)@5 or RR"


class _Spec(NamedTuple):
    """What a measure accepts.

    Attributes:
        at: What follows ``@``: nothing, a cutoff that may be left out, one that must be there, or a recall level.
        defaults: Parameter → its default; a parameter without one is required and maps to its type.
        family: Labels that it is computed from.
        kernel: ``own`` for ours, ``ir_measures`` for delegated ones.
        needs: What a collection must have beyond qrels.
        aliases: Other names of ir_measures for the same.
    """

    at: Literal["none", "optional", "required", "recall"]
    defaults: Mapping[str, Value | type]
    family: Family
    kernel: Literal["own", "ir_measures"] = "ir_measures"
    needs: Literal["", "nuggets", "groups", "choices"] = ""
    aliases: tuple[str, ...] = ()


_REL: Final[dict[str, Value | type]] = {"rel": 1}
_REL_JUDGED: Final[dict[str, Value | type]] = {"rel": 1, "judged_only": False}
_RANGE: Final[dict[str, Value | type]] = {"min_rel": 0, "max_rel": int}
_ALPHA: Final[dict[str, Value | type]] = {"rel": 1, "alpha": 0.5, "judged_only": False}

_SPECS: Final[dict[str, _Spec]] = {
    "nDCG": _Spec("optional", {"dcg": "log2", "gains": dict, "judged_only": False}, "graded", "own", aliases=("NDCG",)),
    "P": _Spec("required", _REL_JUDGED, "binary", "own", aliases=("Precision",)),
    "R": _Spec("required", _REL_JUDGED, "binary", "own", aliases=("Recall",)),
    "RR": _Spec("optional", _REL_JUDGED, "binary", "own", aliases=("MRR",)),
    "AP": _Spec("optional", _REL_JUDGED, "binary", "own", aliases=("MAP",)),
    "Success": _Spec("required", _REL_JUDGED, "binary", "own"),
    "Rprec": _Spec("none", _REL_JUDGED, "binary", "own", aliases=("RPrec",)),
    "Judged": _Spec("optional", {}, "graded", "own"),
    "all_recall": _Spec("required", _REL, "binary", "own"),
    "Coverage": _Spec("required", {}, "binary", "own", "nuggets"),
    "nugget_RR": _Spec("required", {}, "binary", "own", "nuggets"),
    "Robustness": _Spec("required", {}, "graded", "own", "groups"),
    "accuracy": _Spec("none", {}, "binary", "own", "choices"),
    "accuracy_argmax": _Spec("none", {}, "binary", "own", "choices"),
    "Accuracy": _Spec("optional", _REL, "binary"),
    "BPM": _Spec("required", {"T": 1.0, **_RANGE}, "graded"),
    "Bpref": _Spec("none", _REL, "binary", aliases=("BPref",)),
    "Compat": _Spec("none", {"p": 0.95, "normalize": True}, "graded"),
    "ERR": _Spec("optional", {}, "graded"),
    "INST": _Spec("none", {"T": 1.0, **_RANGE}, "graded"),
    "INSQ": _Spec("none", {"T": 1.0, **_RANGE}, "graded"),
    "infAP": _Spec("none", _REL, "binary"),
    "IPrec": _Spec("recall", _REL_JUDGED, "binary"),
    "NERR8": _Spec("required", _RANGE, "graded"),
    "NERR9": _Spec("required", _RANGE, "graded"),
    "NERR10": _Spec("none", {"p": 0.9, **_RANGE}, "graded"),
    "NERR11": _Spec("none", {"T": 1.0, **_RANGE}, "graded"),
    "RBP": _Spec("optional", {"p": 0.8, "rel": 1}, "binary"),
    "SDCG": _Spec("required", {"dcg": "log2", **_RANGE}, "graded"),
    "SetP": _Spec("none", {"rel": 1, "relative": False, "judged_only": False}, "binary", aliases=("SetRelP",)),
    "SetR": _Spec("none", _REL, "binary"),
    "SetF": _Spec("none", {"rel": 1, "beta": 1.0, "judged_only": False}, "binary"),
    "SetAP": _Spec("none", _REL_JUDGED, "binary"),
    "ERR_IA": _Spec("optional", _REL_JUDGED, "binary", needs="nuggets"),
    "nERR_IA": _Spec("optional", _REL_JUDGED, "binary", needs="nuggets"),
    "alpha_DCG": _Spec("optional", _ALPHA, "binary", needs="nuggets", aliases=("\N{GREEK SMALL LETTER ALPHA}_DCG",)),
    "alpha_nDCG": _Spec("optional", _ALPHA, "binary", needs="nuggets", aliases=("\N{GREEK SMALL LETTER ALPHA}_nDCG",)),
    "NRBP": _Spec("none", {"rel": 1, "alpha": 0.5, "beta": 0.5}, "binary", needs="nuggets"),
    "nNRBP": _Spec("none", {"rel": 1, "alpha": 0.5, "beta": 0.5}, "binary", needs="nuggets"),
    "AP_IA": _Spec("none", _REL_JUDGED, "binary", needs="nuggets", aliases=("MAP_IA",)),
    "P_IA": _Spec("optional", _REL_JUDGED, "binary", needs="nuggets"),
    "StRecall": _Spec("optional", _REL, "binary", needs="nuggets"),
}
_BY_ALIAS: Final = {alias: name for name, spec in _SPECS.items() for alias in (name, *spec.aliases)}
_MTEB_NAMES: Final = {
    "nDCG": "ndcg",
    "P": "precision",
    "R": "recall",
    "RR": "mrr",
    "AP": "map",
    "Success": "hit_rate",
    "Rprec": "r_precision",
}
_BY_MTEB_NAME: Final = {_MTEB_NAMES.get(name, name.lower()): name for name in reversed(_SPECS)}


@dataclass(frozen=True, slots=True)
class Measure:
    """A function from a ranking and its judgements to a number.

    Attributes:
        name: Canonical notation, as ir_measures prints it, such as ``nDCG@10`` or ``P(rel=2)@5``; a threshold that
            was written out stays written out, since ``P@5`` takes the task's.
        kernel: Base name, such as ``nDCG``.
        cutoff: Number of ranks that it looks at; ``None`` is all.
        rel: Relevant from this grade of the graded labels; ``None`` is the task's own rule (its binary labels, or
            its ``relevant_from``).
        params: Other parameters that were written and differ from their default, sorted by name.
        family: The labels that it uses.
    """

    name: str
    kernel: str
    cutoff: int | None
    rel: int | None
    params: tuple[tuple[str, Value], ...]
    family: Family

    @property
    def is_delegated(self) -> bool:
        """Whether ir_measures computes it: not one of ours, or one of ours with a parameter that ours lacks."""
        return _SPECS[self.kernel].kernel == "ir_measures" or any(key != "dcg" for key, _ in self.params)

    @property
    def needs(self) -> Literal["", "nuggets", "groups", "choices"]:
        """What a collection must have beyond qrels."""
        return _SPECS[self.kernel].needs

    @property
    def is_exponential(self) -> bool:
        """Whether a grade's gain is 2^grade - 1 instead of the grade."""
        return ("dcg", "exp-log2") in self.params


def parse_measure(text: str) -> Measure:
    """Read one measure.

    Raises:
        UsageError: No such measure, parameter or value; the message names near ones.
    """
    match = _FORM.fullmatch(text)
    if match is None or (match["name"] not in _BY_ALIAS):
        raise UsageError(f"unknown measure '{text}'{_suggest(text)}")
    kernel = _BY_ALIAS[match["name"]]
    spec = _SPECS[kernel]
    written = _read_arguments(text, kernel, spec, match["arguments"])
    cutoff = _read_cutoff(text, kernel, spec, match["at"], written)
    rel = written.pop("rel", None)
    recall = written.pop("recall", None)
    params = tuple(sorted((key, value) for key, value in written.items() if value != spec.defaults[key]))
    shown = {**({"rel": rel} if rel is not None else {}), **dict(params)}
    name = kernel
    if shown:
        name += "(" + ",".join(f"{key}={_show(value)}" for key, value in sorted(shown.items())) + ")"
    if (at := cutoff if recall is None else recall) is not None:
        name += f"@{at}"
    if recall is not None:
        params = (*params, ("recall", recall))
    family: Family = "graded" if rel is not None or (kernel == "RBP") else spec.family
    return Measure(name, kernel, cutoff, rel if isinstance(rel, int) else None, params, family)


def mteb_key(measure: Measure) -> str:
    """Return the key of a measure in MTEB's score dictionary, such as ``ndcg_at_10``.

    Ours follow the same form: ``P(rel=2)@5`` is ``precision_rel2_at_5``, exponential nDCG ``ndcg_exp_at_10``.
    """
    key = _MTEB_NAMES.get(measure.kernel, measure.kernel.lower())
    at: object = measure.cutoff
    parts = {} if measure.rel is None else {"rel": measure.rel}
    for name, value in {**parts, **dict(measure.params)}.items():
        if name == "recall":
            at = value
        elif name == "dcg":
            key += "_exp"
        else:
            key += "_" + re.sub(r"\W+", "_", f"{name}{value}".lower()).strip("_")
    return key if at is None else f"{key}_at_{at}"


def _read_arguments(text: str, kernel: str, spec: _Spec, arguments: str | None) -> dict[str, Value]:
    written: dict[str, Value] = {}
    for key, value in _split_arguments(text, arguments or ""):
        allowed = dict.fromkeys(spec.defaults) if spec.at in {"none", "recall"} else {**spec.defaults, "cutoff": int}
        if key not in allowed:
            known = ", ".join(allowed) or "none"
            raise UsageError(
                f"measure '{text}': {kernel} has no parameter '{key}' (it has: {known}){did_you_mean(key, allowed)}"
            )
        written[key] = value if key == "cutoff" else _convert(text, key, value, spec.defaults[key])
    missing = [key for key, default in spec.defaults.items() if default is int and key not in written]
    if missing:
        raise UsageError(f"measure '{text}': {kernel} needs {missing[0]}, as in {kernel}({missing[0]}=2)")
    return written


def _split_arguments(text: str, arguments: str) -> list[tuple[str, Value]]:
    problem = UsageError(f"measure '{text}': cannot read '({arguments})'; write it as in {_EXAMPLES}")
    try:
        call = ast.parse(f"f({arguments})", mode="eval").body
        keywords = call.keywords if isinstance(call, ast.Call) else []
        pairs = [(keyword.arg or "**", ast.literal_eval(keyword.value)) for keyword in keywords]
    except (SyntaxError, ValueError) as error:
        raise problem from error
    if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Name):
        raise problem
    return [(key, tuple(sorted(value.items())) if isinstance(value, dict) else value) for key, value in pairs]


def _convert(text: str, key: str, value: Value, default: Value | type) -> Value:
    if key == "dcg" and value not in ("log2", "exp-log2"):
        raise UsageError(f"measure '{text}': dcg is 'log2' or 'exp-log2', not {value!r}")
    wanted = default if isinstance(default, type) else type(default)
    if wanted is dict:
        if isinstance(value, tuple) and all(isinstance(part, int) for pair in value for part in pair):
            return value
    elif wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    elif isinstance(value, wanted) and isinstance(value, bool) == (wanted is bool):
        return value
    raise UsageError(f"measure '{text}': {key} takes {_ARTICLES[wanted]}, not {value!r}")


_ARTICLES: Final[dict[type, str]] = {
    int: "an integer",
    float: "a number",
    bool: "True or False",
    str: "a string in quotes",
    dict: "a mapping from grade to gain, such as {1: 1, 2: 3}",
}


def _read_cutoff(text: str, kernel: str, spec: _Spec, at: str | None, written: dict[str, Value]) -> int | None:
    cutoff = written.pop("cutoff", None)
    if at is not None and cutoff is not None:
        raise UsageError(f"measure '{text}' has two cutoffs; keep the one after @")
    if spec.at == "recall":
        if at is None:
            raise UsageError(f"measure '{text}': {kernel} needs a recall level, as in {kernel}@0.1")
        written["recall"] = float(at)
        return None
    if at is None and cutoff is None:
        if spec.at == "required":
            raise UsageError(f"measure '{text}': {kernel} needs a cutoff, as in {kernel}@10")
        return None
    if spec.at == "none":
        raise UsageError(f"measure '{text}': {kernel} takes no cutoff; write {kernel}")
    value: object = int(at) if at is not None and at.isdecimal() else cutoff if at is None else at
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"measure '{text}': a cutoff is an integer from 1 on, as in {kernel}@10")
    return value


def _show(value: Value) -> str:
    if isinstance(value, tuple):
        return "{" + ",".join(f"{grade}:{gain}" for grade, gain in value if grade != gain) + "}"
    return repr(value)


def _suggest(text: str) -> str:
    """Return a suggestion for an unknown measure: a name of MTEB, one in other case, or near ones."""
    match = re.fullmatch(r"\s*(?P<name>[A-Za-z_]+?)(?P<rest>\(.*\))?(?:(?:_?@|_at_|_cut_|_)(?P<at>\d+))?\s*", text)
    if match is None:
        return f"; write it as in {_EXAMPLES}"
    tail = (match["rest"] or "") + (f"@{match['at']}" if match["at"] else "")
    folded = match["name"].lower()
    by_folded = {alias.lower(): name for alias, name in _BY_ALIAS.items()}
    known = _BY_MTEB_NAME.get(folded) or by_folded.get(folded)
    if known is not None:
        try:
            measure = parse_measure(known + tail)
        except UsageError:
            return f"; did you mean '{known}'?"
        return f"; did you mean '{measure.name}' (which MTEB calls {mteb_key(measure)})?"
    near = did_you_mean(match["name"], _SPECS)
    return near or f"; write it as in {_EXAMPLES}"
