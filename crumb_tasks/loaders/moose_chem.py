"""TOMATO-Chem, the data of MOOSE-Chem (Yang et al. 2024, arXiv 2410.07076): a research question and what inspired it.

The sheet ``Overall`` holds 51 papers with the question that each set out from and the titles of the papers that
inspired it; ``Inspiration_Corpus_<size>.json`` is a list of ``[title, abstract]`` to find them in. Upstream traps: a
question or survey that gives the answer away has a stricter wording in a second column, where else ``NA`` stands;
titles in the sheet differ from the corpus in line breaks, dashes and marks; two corpora hold papers twice.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import msgspec

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import DataError, SchemaError
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._rows import read_xlsx
from crumb_tasks.loaders._tables import TextTable, text_table
from crumb_tasks.sources import OpenedSource

_SHEET = "chem_research_2024.xlsx"
_QUESTION, _SURVEY = "Background Question", "Background Little Survey"
_INSPIRATIONS = tuple(f"Inspiration paper {number} title" for number in (1, 2, 3))
_COLUMNS = ("No", _QUESTION, f"{_QUESTION} (strict)", _SURVEY, f"{_SURVEY} (strict)", *_INSPIRATIONS)
_MARKUP = re.compile(r"<[^>]+>")
_NOT_A_WORD = re.compile(r"[\W_]+")


class Options(LoaderOptions):
    """Which corpus.

    Attributes:
        size: Number of papers in the corpus, as the file names have it.
    """

    size: Literal[150, 300, 1000]


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return the sheet and the corpus."""
    del split
    return (_SHEET, f"Inspiration_Corpus_{read_options(task, Options).size}.json")


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load the one split that the benchmark has."""
    sheet, corpus_path = source.paths(files(task, split)).values()
    corpus, doc_by_title, n_repeated = _read_corpus(corpus_path, task.empty_text)
    ids: list[str] = []
    questions: list[str] = []
    surveys: list[str] = []
    grade_by_doc_by_query: dict[str, dict[str, int]] = {}
    for row_number, cells in read_xlsx(sheet, "Overall", _COLUMNS):
        number, question, strict_question, survey, strict_survey, *titles = (cell.strip() for cell in cells)
        if (query_id := f"m{number}") in grade_by_doc_by_query:
            raise DataError(f"{sheet}: row {row_number}: No '{number}' stands there twice")
        ids.append(query_id)
        questions.append(question if strict_question == "NA" else strict_question)
        surveys.append(survey if strict_survey == "NA" else strict_survey)
        grade_by_doc_by_query[query_id] = {
            _doc_of(title, doc_by_title, f"{sheet}: row {row_number}"): 1 for title in titles if title != "NA"
        }
    columns = {"id": ids, "text": questions, "survey": surveys}
    return Collection(
        name=task.name,
        split=split,
        corpus=corpus.table,
        queries=text_table(columns, empty_text=task.empty_text, where=str(sheet)).table,
        qrels={"graded": Qrels.from_dict(grade_by_doc_by_query, name=task.name)},
        n_empty_texts=corpus.n_empty,
        notes=(f"{n_repeated} papers stand in the corpus twice; the first is kept",) if n_repeated else (),
    )


def _read_corpus(path: Path, empty_text: str) -> tuple[TextTable, dict[str, str], int]:
    try:
        papers = msgspec.json.decode(path.read_bytes(), type=list[tuple[str, str]])
    except msgspec.ValidationError as error:
        raise SchemaError(f"{path}: expected a list of [title, abstract] ({error})") from error
    except msgspec.DecodeError as error:
        raise DataError(f"{path}: not JSON ({error})") from error
    kept: dict[str, tuple[str, str]] = {}
    for title, abstract in papers:
        kept.setdefault(_key(title), (title, abstract))
    titles, abstracts = (list(column) for column in zip(*kept.values(), strict=True))
    ids = [f"d{index}" for index in range(len(kept))]
    corpus = text_table({"id": ids, "title": titles, "text": abstracts}, empty_text=empty_text, where=str(path))
    return corpus, dict(zip(kept, ids, strict=True)), len(papers) - len(kept)


def _doc_of(title: str, doc_by_title: dict[str, str], where: str) -> str:
    if (key := _key(title)) not in doc_by_title:
        raise DataError(f"{where}: the inspiration '{title[:80]}' is not in the corpus")
    return doc_by_title[key]


def _key(title: str) -> str:
    """Return what two spellings of one title have in common: its words, without markup, case and punctuation."""
    return _NOT_A_WORD.sub(" ", _MARKUP.sub("", title).casefold()).strip()
