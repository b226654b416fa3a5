"""MultiHop-RAG (Tang and Yang 2024, arXiv 2401.15391): questions whose answer stands in two to four news articles.

Each piece of a question's evidence names its article and quotes the sentences that count, its *fact*. Two corpora: the
articles, or chunks of them. A chunk is relevant when it holds a fact, spaces and line breaks apart, as in the
benchmark's own evaluation; of a fact that a boundary cuts every part is relevant, since an answer needs them all. The
facts of a question are its nuggets, each supported by the chunks that hold it whole.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

import msgspec

from crumb_tasks.cards import TaskCard
from crumb_tasks.collection import Collection, Qrels
from crumb_tasks.errors import DataError
from crumb_tasks.loaders._options import LoaderOptions, read_options
from crumb_tasks.loaders._rows import Field, read_rows, read_structs
from crumb_tasks.loaders._tables import text_table
from crumb_tasks.sources import OpenedSource

_QUERIES, _CORPUS = "MultiHopRAG.json", "corpus.json"
_WORD = re.compile(r"\w+|[^\w\s]")
_SENTENCE_END = re.compile(
    "(?<=[.!?])[\"'\N{RIGHT DOUBLE QUOTATION MARK}\N{RIGHT SINGLE QUOTATION MARK})\\]]*\\s+|\\n+"
)
_NULL = "null_query"
_KEY_LENGTH = 24
_EXAMPLES = 3


class Options(LoaderOptions):
    """What is searched.

    Attributes:
        unit: ``article``, or ``chunk``.
        chunk_words: With chunks the most words and punctuation marks that one has.
    """

    unit: Literal["article", "chunk"] = "article"
    chunk_words: int = 256


class _Evidence(msgspec.Struct, gc=False):
    title: str
    fact: str
    url: str


class _Query(msgspec.Struct, gc=False):
    query: str
    question_type: str
    evidence_list: list[_Evidence]


@dataclass(frozen=True)
class Article:
    """A news article."""

    title: str
    url: str
    body: str


@dataclass
class _Judged:
    """What was made of the questions' evidence.

    Attributes:
        grade_by_doc_by_query: The judgements; an unjudged question has none.
        nuggets: By question its facts and the chunks that hold each whole; empty for articles.
        left_out: Why questions are unjudged → which.
        n_cut: Facts that no chunk holds whole.
        n_repeated: Facts that several chunks hold whole.
    """

    grade_by_doc_by_query: dict[str, dict[str, int]] = field(default_factory=dict)
    nuggets: dict[str, dict[str, frozenset[str]]] = field(default_factory=dict)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    n_cut: int = 0
    n_repeated: int = 0


def files(task: TaskCard, split: str) -> tuple[str, ...]:
    """Return the questions and the articles."""
    del task, split
    return (_QUERIES, _CORPUS)


def load(task: TaskCard, split: str, source: OpenedSource) -> Collection:
    """Load the one split that the benchmark has.

    Raises:
        DataError: Two articles have one address.
    """
    queries_path, corpus_path = source.paths(files(task, split)).values()
    options = read_options(task, Options)
    fields = (Field("title"), Field("url"), Field("body"))
    articles = [Article(*row) for _, row in read_rows(corpus_path, fields)]
    if len({article.url for article in articles}) < len(articles):
        twice = next(url for url, count in Counter(article.url for article in articles).items() if count > 1)
        raise DataError(f"{corpus_path}: two articles have the address {twice}; evidence names articles by it")
    query_by_id = {f"q{row - 1}": query for row, query in read_structs(queries_path, _Query)}
    if options.unit == "article":
        rows = [(f"a{at}", article.title, article.body) for at, article in enumerate(articles)]
        judged = _judge_articles(query_by_id, articles)
    else:
        rows, judged = _judge_chunks(query_by_id, articles, options.chunk_words)
    ids, titles, texts = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    columns = {"id": ids, "title": titles, "text": texts}
    corpus = text_table(columns, empty_text=task.empty_text, where=str(corpus_path))
    asked = {"id": list(query_by_id), "text": [query.query for query in query_by_id.values()]}
    types = {query_id: query.question_type.removesuffix("_query") for query_id, query in query_by_id.items()}
    return Collection(
        name=task.name,
        split=split,
        corpus=corpus.table,
        queries=text_table(asked, empty_text=task.empty_text, where=str(queries_path)).table,
        qrels={"graded": Qrels.from_dict(judged.grade_by_doc_by_query, name=task.name)},
        nuggets=judged.nuggets,
        query_labels={"type": types},
        n_empty_texts=corpus.n_empty,
        notes=tuple(_notes(judged)),
    )


def _judge_articles(query_by_id: Mapping[str, _Query], articles: Sequence[Article]) -> _Judged:
    judged = _Judged()
    find = _finder(articles)
    for query_id, query in query_by_id.items():
        places = [find(evidence) for evidence in query.evidence_list]
        if _is_judged(judged, query_id, query, places):
            judged.grade_by_doc_by_query[query_id] = {f"a{place}": 1 for place in places}
    return judged


def _judge_chunks(
    query_by_id: Mapping[str, _Query], articles: Sequence[Article], chunk_words: int
) -> tuple[list[tuple[str, str, str]], _Judged]:
    """Return the chunks, each with its article's title, and what holds the questions' facts."""
    chunks_by_article = [cut(article.body, chunk_words) for article in articles]
    rows = [
        (f"a{at}-{number}", articles[at].title, chunk)
        for at, chunks in enumerate(chunks_by_article)
        for number, chunk in enumerate(chunks)
    ]
    spans_by_fact = _find_facts(
        {_bare(evidence.fact) for query in query_by_id.values() for evidence in query.evidence_list}, chunks_by_article
    )
    judged = _Judged()
    find = _finder(articles)
    chunks_by_fact: dict[str, list[str]] = {}
    for query_id, query in query_by_id.items():
        facts = list(dict.fromkeys(_bare(evidence.fact) for evidence in query.evidence_list))
        places = [find(evidence) for evidence in query.evidence_list]
        if not _is_judged(judged, query_id, query, [*places, *(spans_by_fact.get(fact) for fact in facts)]):
            continue
        spans = {fact: spans_by_fact[fact] for fact in facts}
        whole = {fact: [span[0] for span in found if len(span) == 1] for fact, found in spans.items()}
        chunks_by_fact |= whole
        relevant = [whole[fact] or [chunk for span in found for chunk in span] for fact, found in spans.items()]
        judged.grade_by_doc_by_query[query_id] = {chunk: 1 for of_fact in relevant for chunk in of_fact}
        judged.nuggets[query_id] = {f"f{at}": frozenset(chunks) for at, chunks in enumerate(whole.values())}
    judged.n_cut = sum(not chunks for chunks in chunks_by_fact.values())
    judged.n_repeated = sum(len(set(chunks)) > 1 for chunks in chunks_by_fact.values())
    return rows, judged


def _is_judged(judged: _Judged, query_id: str, query: _Query, found: Sequence[object | None]) -> bool:
    """Tell whether all of a question's evidence was found; else it is left unjudged for a reason that is noted."""
    judged.grade_by_doc_by_query[query_id] = {}
    if not query.evidence_list or query.question_type == _NULL:
        judged.left_out.setdefault(f"have no evidence ({query.question_type})", []).append(query_id)
    elif any(place is None for place in found):
        judged.left_out.setdefault("have evidence that is not in the corpus", []).append(query_id)
    else:
        return True
    return False


def _finder(articles: Sequence[Article]) -> Callable[[_Evidence], int | None]:
    """Return what finds the article of a piece of evidence: by its address, else by a title that only one has."""
    by_url = {article.url: at for at, article in enumerate(articles)}
    count_by_title = Counter(article.title for article in articles)
    by_title = {article.title: at for at, article in enumerate(articles) if count_by_title[article.title] == 1}
    return lambda evidence: by_url.get(evidence.url, by_title.get(evidence.title))


def cut(text: str, most_words: int) -> list[str]:
    """Cut a text into chunks of whole sentences, each with at most so many words and punctuation marks.

    Chunks do not overlap, and put together they are the text but for white space at the seams. A sentence that is
    longer alone is cut between words. The rule needs no model and no tokenizer, so that it is the same everywhere.
    """
    pieces = [piece for sentence in _sentences(text) for piece in _short_pieces(sentence, most_words)]
    chunks: list[str] = []
    words = 0
    for piece, n_words in pieces:
        if chunks and words + n_words <= most_words:
            chunks[-1] += piece
            words += n_words
        else:
            chunks.append(piece)
            words = n_words
    return [stripped for chunk in chunks if (stripped := chunk.strip())]


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text with the white space behind them; a line break ends one as well."""
    start = 0
    for end in _SENTENCE_END.finditer(text):
        yield text[start : end.end()]
        start = end.end()
    yield text[start:]


def _short_pieces(sentence: str, most_words: int) -> Iterator[tuple[str, int]]:
    """Yield a sentence in pieces of at most ``most_words``, and how many each has."""
    starts = [match.start() for match in _WORD.finditer(sentence)]
    for first in range(0, max(len(starts), 1), most_words):
        begin = starts[first] if first else 0
        end = starts[first + most_words] if first + most_words < len(starts) else len(sentence)
        yield sentence[begin:end], len(starts[first : first + most_words])


def _find_facts(
    facts: AbstractSet[str], chunks_by_article: Sequence[Sequence[str]]
) -> dict[str, list[tuple[str, ...]]]:
    """Return for each fact that some article holds where it stands: the chunks that it reaches over, each time."""
    length = min((len(fact) for fact in facts if fact), default=0)
    length = min(length, _KEY_LENGTH)
    if not length:
        return {}
    facts_by_key: dict[str, list[str]] = {}
    for fact in facts:
        facts_by_key.setdefault(fact[:length], []).append(fact)
    found: dict[str, list[tuple[str, ...]]] = {}
    for at, chunks in enumerate(chunks_by_article):
        bare = [_bare(chunk) for chunk in chunks]
        ends = list(accumulate(map(len, bare)))
        text = "".join(bare)
        for start in range(len(text) - length + 1):
            for fact in facts_by_key.get(text[start : start + length], ()):
                if text.startswith(fact, start):
                    first, last = bisect_right(ends, start), bisect_right(ends, start + len(fact) - 1)
                    found.setdefault(fact, []).append(tuple(f"a{at}-{number}" for number in range(first, last + 1)))
    return found


def _bare(text: str) -> str:
    """Return a text without spaces and line breaks, as the benchmark's evaluation compares them."""
    return text.replace(" ", "").replace("\n", "")


def _notes(judged: _Judged) -> Iterator[str]:
    for reason, query_ids in judged.left_out.items():
        shown = ", ".join(query_ids[:_EXAMPLES])
        yield f"{len(query_ids)} questions {reason} and are not judged (such as {shown})"
    if judged.n_cut:
        yield f"{judged.n_cut} facts are cut by a boundary of chunks: all their parts are relevant, none supports them"
    if judged.n_repeated:
        yield f"{judged.n_repeated} facts stand in several chunks, all of which are relevant"
